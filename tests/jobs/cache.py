"""The test cache (tests/harness/cache.py): entries are created once, completely or not at all, and removed after
disuse."""

import os
import signal
import subprocess
import sys
import tempfile

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, TESTS)
from harness import cache, packages  # noqa: E402


def make_slowly(*words):
    """Creates an entry: prints a line while it does, and waits for one."""
    def make(folder):
        with open(os.path.join(folder, "half"), "w", encoding="ascii"):
            print("making", flush=True)
        sys.stdin.readline()
        fill(folder)

    print(cache.entry("thing", words, make), flush=True)


def start_maker(*words):
    return subprocess.Popen([sys.executable, os.path.abspath(__file__), "make_slowly", *words], text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def folders(name):
    """Folders of a name, finished or not."""
    return sorted(found.path for found in os.scandir(os.path.join(cache.root(), name)) if found.is_dir(follow_symlinks=False))


def fill(folder):
    with open(os.path.join(folder, "whole"), "w", encoding="ascii"):
        pass


def refill(folder):
    with open(os.path.join(folder, "whole"), "w", encoding="ascii") as file:
        file.write("again")


def made_once():
    """Two runs need the same entry: one creates it, and the other waits for it."""
    first = start_maker("a")
    if first.stdout.readline() != "making\n":
        return "the first run does not make the entry"
    second = start_maker("a")
    waits = second.stderr.readline()
    other = start_maker("b")
    if other.stdout.readline() != "making\n":
        return "a run waits for another entry than its own"
    made = [maker.communicate("\n", timeout=60)[0].splitlines() for maker in (first, second, other)]
    if "waiting for another test run" not in waits:
        return f"the second run does not wait: {waits}"
    if not made[0] == made[1] != made[2] or not os.path.exists(os.path.join(made[0][0], "whole")):
        return f"the folders are {made}"
    return None


def interrupted():
    """The entry of a killed run is not used; the next run creates it anew, and later the remains are removed."""
    killed = start_maker("a")
    killed.stdout.readline()
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    remains = folders("thing")
    if len(remains) != 1 or os.listdir(remains[0]) != ["half"]:
        return f"the killed run has left {remains}"
    printed = start_maker("a").communicate("\n", timeout=60)[0].splitlines()
    if printed[0] != "making" or not os.path.exists(os.path.join(printed[1], "whole")):
        return f"the next run prints {printed}"
    shelf, now = os.path.dirname(remains[0]), os.stat(remains[0]).st_mtime
    cache.remove_unused(shelf, now + cache.KEEP_OTHERS_S / 2)
    if len(folders("thing")) != 2:
        return "a folder that another run may be making is gone"
    cache.remove_unused(shelf, now + 2 * cache.KEEP_OTHERS_S)
    if folders("thing") != printed[1:]:
        return f"what a killed run has left stays: {folders('thing')}"
    return None


def failed():
    """An entry whose creation fails leaves nothing, and the next run tries again."""
    def fail(folder):
        fill(folder)
        raise OSError("no network")

    for _ in range(2):
        try:
            return f"there is an entry: {cache.entry('thing', [], fail)}"
        except OSError as error:
            if str(error) != "no network" or folders("thing"):
                return f"{error}; left: {folders('thing')}"
    return None


def keys():
    """Different strings or a different `make` give different entries; an entry removed by hand is created anew."""
    made = {cache.entry("thing", *what) for what in
               ((["a"], fill), (["a"], fill), (["b"], fill), (["a", "b"], fill), (["a"], refill))}
    if len(made) != 4:
        return f"the folders are {made}"
    folder = cache.entry("thing", ["a"], fill)
    os.rename(folder, f"{folder}-moved")
    anew = cache.entry("thing", ["a"], fill)
    if not os.path.exists(os.path.join(anew, "whole")):
        return "what was removed is not made anew"
    if cache.entry("thing", ["a"], fill, again=True) == anew or not os.path.exists(os.path.join(anew, "whole")):
        return "an entry that is made again replaces the files of the former one"
    return None


def unused():
    """Entries unused for 30 days are removed when another entry of their name is created; others stay."""
    old, used, held = (cache.entry("thing", [word], fill) for word in ("old", "used", "held"))
    for folder in (old, used, held):
        os.utime(folder, (0, 0))
    if cache.entry("thing", ["used"], fill) != used:
        return "an old entry is not used"
    with cache._lock(held.rpartition(".")[0]):
        new = cache.entry("thing", ["new"], fill)
    if folders("thing") != sorted([used, held, new]):
        return f"there are {folders('thing')}"
    left = [name for name in os.listdir(os.path.dirname(new)) if name.startswith(os.path.basename(old).partition(".")[0])]
    if left:
        return f"of an entry that is gone there are {left}"
    return None


def warm():
    """Cached packages are found without a process, and so without network."""
    commands = []

    def run(words, folder=None):
        commands.append(words[0])
        return ""

    def get_all():
        return [packages.wheel("mpich"), packages.debian(["mpich"], ["libmpich-dev"])]

    real, packages.run = packages.run, run
    try:
        cold, made = get_all(), len(commands)
        if made == 0 or get_all() != cold or len(commands) != made:
            return f"{made} commands at first, and then {commands[made:]}"
    finally:
        packages.run = real
    return None


def _make(case):
    def run(session):
        with tempfile.TemporaryDirectory() as folder:
            environment = {"XDG_CACHE_HOME": folder}
            outcome = session.start([sys.executable, os.path.abspath(__file__), case.__name__], env=environment).finish()
        return outcome.problem(0, False), outcome.text()
    return run


# Each case runs in a separate process with a separate cache.
for _case in (made_once, interrupted, failed, keys, unused, warm):
    globals()[f"case_{_case.__name__}"] = _make(_case)


if __name__ == "__main__":
    sys.exit(globals()[sys.argv[1]](*sys.argv[2:]))
