"""Cache of everything that the tests fetch from elsewhere or build from it: $XDG_CACHE_HOME/fastpath-tests, by default
~/.cache/fastpath-tests. All checkouts of a user share it, and any number of runs may use it at once.

An entry is a folder, found by a name and by the words that its contents depend on. Layout, for each name:

    NAME/KEY           link to the folder of a finished entry
    NAME/KEY.XXXXXXXX  folder of an entry; without a link to it, unfinished or replaced
    NAME/KEY.lock      lock of the entry; holds the words, as JSON

A folder keeps its path from the first file on, because programs record where they were built or installed. The link
publishes it, and is put in place by rename. So an unfinished entry is never used, and processes that a killed run has
left behind write only to a folder that no other run looks at.
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
# After these times without use, finished and other folders are removed.
KEEP_FINISHED_S, KEEP_OTHERS_S = 30 * DAY_S, DAY_S


def root():
    """The folder of the cache. A relative $XDG_CACHE_HOME is ignored, as its specification asks."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "fastpath-tests")


def entry(name, words, make, again=False):
    """Returns the folder of an entry. If it is missing, `make(folder)` fills it first; an exception of `make` passes on.

    `words`: strings that the contents depend on; the source text of `make` is one of them. `again`: makes the entry
    anew even if it is there; runs that use the former one keep it.
    """
    shelf, key = _locate(name, words, make)
    os.makedirs(shelf, exist_ok=True)
    link = os.path.join(shelf, key)
    with _lock(link, f"cache: waiting for another run that makes {name}") as lock:
        folder = _follow(link)
        if folder and not again:
            os.utime(folder)
            return folder
        folder = tempfile.mkdtemp(prefix=f"{key}.", dir=shelf)
        print(f"cache: making {name} in {folder}", file=sys.stderr, flush=True)
        try:
            os.chmod(folder, 0o755)
            make(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        # Archives bring the time of their top folder along.
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
    """Whether an entry is there."""
    shelf, key = _locate(name, words, make)
    return _follow(os.path.join(shelf, key)) is not None


def remove_unused(shelf, now=None):
    """Removes the folders of a name that have not been used for long. Those of locked entries stay."""
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
    """The folder of a name, and the key of an entry there."""
    text = json.dumps([*words, inspect.getsource(make)])
    return os.path.join(root(), name), hashlib.sha256(text.encode()).hexdigest()[:16]


def _follow(link):
    """The folder that a link publishes; None if there is none."""
    try:
        folder = os.path.join(os.path.dirname(link), os.readlink(link))
    except FileNotFoundError:
        return None
    return folder if os.path.isdir(folder) else None


@contextlib.contextmanager
def _lock(link, note=None):
    """Holds the lock of an entry. With `note`, waits for it, and prints the note if the entry is not there yet;
    otherwise yields None if another run holds the lock."""
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
            # `remove_unused` may have removed the file that was just opened, and another run may hold a new one.
            if _is_at(file, path):
                yield file
                return


def _is_at(file, path):
    """Whether an open file is the one that is at `path` now."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
