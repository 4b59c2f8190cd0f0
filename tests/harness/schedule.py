"""Runs tests beside each other, as far as processors and memory allow. Each test is a process of its own, with its own
temporary folder and, where the kernel allows it, its own /dev/shm, so that what a test leaves behind is known to be its.

A test says what it needs: how many processors it computes or spins on (0: it only waits), memory, or the machine alone.
"""

import ctypes
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback

# Memory that a test is taken to need if it says nothing, in MiB.
USUAL_MEMORY = 400

CLONE_NEWNS, MS_REC, MS_PRIVATE, PR_SET_PDEATHSIG = 0x20000, 0x4000, 0x40000, 1


class Test:
    """One test. `body` is called in a process of its own and returns its outcome, which JSON can hold."""

    def __init__(self, name, body, processors=1, memory=USUAL_MEMORY, alone=False):
        self.name, self.body = name, body
        self.processors, self.memory, self.alone = processors, memory, alone


class Room:
    """What all tests that run at one time share: processors, memory in MiB, and at most `jobs` tests."""

    def __init__(self, processors, memory, jobs):
        self.processors, self.memory, self.jobs = processors, memory, jobs
        # Tests that wait leave places for those that compute.
        self.places_to_wait = max(1, jobs - processors)

    @classmethod
    def of_machine(cls, jobs=None):
        """This machine's room."""
        processors = len(os.sched_getaffinity(0))
        return cls(processors, _available_memory(), jobs or 4 * processors)

    def fits(self, test, running):
        """Whether a test may start beside those that run. A test that is larger than the room starts if nothing it would
        share with runs."""
        if not running:
            return True
        if test.alone or any(other.alone for other in running) or len(running) >= self.jobs:
            return False
        if test.processors:
            busy = sum(other.processors for other in running)
            if busy and busy + test.processors > self.processors:
                return False
        elif sum(other.processors == 0 for other in running) >= self.places_to_wait:
            return False
        return sum(other.memory for other in running) + test.memory <= self.memory


class Ended:
    """How a test's process ended: what `body` returned, or None and why there is nothing; seconds; what it printed."""

    def __init__(self, test, outcome, trouble, seconds, processor_seconds, said):
        self.test, self.outcome, self.trouble = test, outcome, trouble
        self.seconds, self.processor_seconds, self.said = seconds, processor_seconds, said


class _Started:
    def __init__(self, test):
        self.test, self.since = test, time.monotonic()
        self.folder = tempfile.mkdtemp(prefix="mpi-test-")
        os.chmod(self.folder, 0o755)  # processes of other users have folders in it
        self.outcome, self.said = (os.path.join(self.folder, name) for name in ("outcome", "said"))
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._live()

    def _live(self):
        """The test's process. It does not return."""
        code = 1
        try:
            _libc().prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
            with open(self.said, "wb") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            place = os.path.join(self.folder, "tmp")
            os.mkdir(place)
            os.chmod(place, 0o755)
            tempfile.tempdir = os.environ["TMPDIR"] = place
            os.environ["MPI_TEST_OWN_SHM"] = str(int(_mount_own_shm()))
            outcome = self.test.body()
            with open(self.outcome, "w", encoding="utf-8") as file:
                json.dump(outcome, file)
            code = 0
        except SystemExit as end:
            code = end.code
        except BaseException:  # the parent reads it from what was printed
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def collect(self, status, usage):
        seconds = time.monotonic() - self.since
        with open(self.said, encoding="utf-8", errors="replace") as file:
            said = file.read()
        outcome = trouble = None
        try:
            with open(self.outcome, encoding="utf-8") as file:
                outcome = json.load(file)
        except (OSError, ValueError):
            trouble = f"the test's own process ended with {os.waitstatus_to_exitcode(status)}"
        shutil.rmtree(self.folder, ignore_errors=True)
        return Ended(self.test, outcome, trouble, seconds, usage.ru_utime + usage.ru_stime, said)


def order(tests, seed):
    """The tests in an order drawn from the seed. Those that need more processors come first, so that no processor is idle
    until enough others are free; those that run alone come last."""
    tests = sorted(tests, key=lambda test: test.name)
    random.Random(seed).shuffle(tests)
    most = len(os.sched_getaffinity(0))
    return sorted(tests, key=lambda test: (test.alone, -min(test.processors, most)))


def pick(waiting, running, room):
    """Index of the first waiting test that may start, or None. Only tests that wait overtake one that finds no processor
    free: it would never start beside a stream of smaller ones."""
    are_processors_due = False
    for i, test in enumerate(waiting):
        if room.fits(test, running) and not (test.processors and are_processors_due):
            return i
        are_processors_due |= test.processors > 0
    return None


def run(tests, room, started, ended):
    """Runs all tests. `started` is called with the names of those that run, `ended` with an `Ended`."""
    waiting, processes = list(tests), {}
    try:
        while waiting or processes:
            running = [one.test for one in processes.values()]
            while (found := pick(waiting, running, room)) is not None:
                one = _Started(waiting.pop(found))
                processes[one.pid] = one
                running.append(one.test)
                started([test.name for test in running])
            pid, status, usage = os.wait4(-1, 0)
            if pid in processes:
                ended(processes.pop(pid).collect(status, usage))
    finally:
        # The run itself is told to end: each test ends what it has started.
        for pid in processes:
            os.kill(pid, signal.SIGTERM)
        for pid, one in processes.items():
            os.waitpid(pid, 0)
            shutil.rmtree(one.folder, ignore_errors=True)


def _libc():
    return ctypes.CDLL(None, use_errno=True)


def _mount_own_shm():
    """Gives this process a /dev/shm of its own. Returns whether it may have one."""
    libc = _libc()
    if libc.unshare(CLONE_NEWNS) != 0 or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) != 0:
        return False
    return libc.mount(b"none", b"/dev/shm", b"tmpfs", 0, b"mode=1777") == 0


def _available_memory():
    """Memory that is free for tests, in MiB."""
    with open("/proc/meminfo", encoding="ascii") as file:
        words = dict(line.split(":", 1) for line in file)
    return int(words["MemAvailable"].split()[0]) // 1024 * 3 // 4
