"""Cache of everything that the tests download, or build from downloads: $XDG_CACHE_HOME/fastpath-tests, by default
~/.cache/fastpath-tests. All checkouts of a user share it, and concurrent runs may use it.

An entry is a folder, found by its name and by the strings that its contents depend on. Layout, for each name:

    NAME/KEY           link to the folder of a finished entry
    NAME/KEY.XXXXXXXX  folder of an entry; without a link to it, unfinished or replaced
    NAME/KEY.lock      lock of the entry; holds the strings, as JSON

A folder never moves, because programs record where they were built or installed. A link, put in place by rename,
publishes it. So an unfinished entry is never used, and processes left behind by a killed run write only to a folder
that no other run uses.
"""

import contextlib
import fcntl
import hashlib
import inspect
import json
import os
import shutil
import sys
import tempfile
import time

DAY_S = 86400
# Ages, without use, at which finished and other folders are removed.
KEEP_FINISHED_S, KEEP_OTHERS_S = 30 * DAY_S, DAY_S


def root():
    """Path of the cache. A relative $XDG_CACHE_HOME is ignored, as its specification requires."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "fastpath-tests")


def entry(name, words, make, again=False):
    """Returns the folder of an entry. If it is missing, `make(folder)` fills it first; an exception of `make` passes on.

    `words` are the strings that the contents depend on, besides the source text of `make`. `again` rebuilds an existing
    entry; runs that use the old one keep it.
    """
    shelf, key = _locate(name, words, make)
    os.makedirs(shelf, exist_ok=True)
    link = os.path.join(shelf, key)
    with _lock(link, f"cache: waiting for another test run, which creates {name}") as lock:
        folder = _follow(link)
        if folder and not again:
            os.utime(folder)
            return folder
        folder = tempfile.mkdtemp(prefix=f"{key}.", dir=shelf)
        print(f"cache: creating {name} in {folder}", file=sys.stderr, flush=True)
        try:
            os.chmod(folder, 0o755)
            make(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        # Archives restore the time of their top folder.
        os.utime(folder)
        lock.truncate(0)
        lock.write(json.dumps(words, indent=1))
        lock.flush()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{link}.new")
        os.symlink(os.path.basename(folder), f"{link}.new")
        os.replace(f"{link}.new", link)
    remove_unused(shelf)
    return folder


def has(name, words, make):
    """Returns whether an entry exists."""
    shelf, key = _locate(name, words, make)
    return _follow(os.path.join(shelf, key)) is not None


def remove_unused(shelf, now=None):
    """Removes the folders of a name that have been unused for long. Folders of locked entries stay."""
    now = now or time.time()
    for folder in [found.path for found in os.scandir(shelf) if found.is_dir(follow_symlinks=False)]:
        link = folder.rpartition(".")[0]
        with _lock(link) as lock, contextlib.suppress(FileNotFoundError):
            is_finished = _follow(link) == folder
            if not lock or now - os.stat(folder).st_mtime < (KEEP_FINISHED_S if is_finished else KEEP_OTHERS_S):
                continue
            if is_finished:
                os.unlink(link)
            shutil.rmtree(folder, ignore_errors=True)
            if not os.path.lexists(link):
                os.unlink(f"{link}.lock")


def _locate(name, words, make):
    """Returns the folder of a name, and the key of an entry in it."""
    text = json.dumps([*words, inspect.getsource(make)])
    return os.path.join(root(), name), hashlib.sha256(text.encode()).hexdigest()[:16]


def _follow(link):
    """Returns the folder that a link publishes; None if there is none."""
    try:
        folder = os.path.join(os.path.dirname(link), os.readlink(link))
    except FileNotFoundError:
        return None
    return folder if os.path.isdir(folder) else None


@contextlib.contextmanager
def _lock(link, note=None):
    """Holds the lock of an entry. With `note`, waits for it, and prints the note if the entry does not exist yet.
    Otherwise yields None if another run holds the lock."""
    path = f"{link}.lock"
    while True:
        with open(path, "a", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if note is None:
                    yield None
                    return
                if not _follow(link):
                    print(note, file=sys.stderr, flush=True)
                fcntl.flock(file, fcntl.LOCK_EX)
            # `remove_unused` may have removed the opened file, and another run may hold a new one.
            if _is_at(file, path):
                yield file
                return


def _is_at(file, path):
    """Returns whether an open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
