"""Runs tests in parallel, as far as processors and memory allow. Each test is a separate process with its own temporary
folder and, if the kernel allows it, its own /dev/shm, so that leftovers are attributed to it.

A test declares its needs: processors on which it computes or spins (0: it only waits), memory, or the whole machine.
Most tests compute only part of their time. If processors were idle during the last interval, one test more is started
than the declarations allow.
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

# Memory of a test that declares none, in MiB.
USUAL_MEMORY = 400

# Minimum of idle processors in the last interval for a start beyond the declared needs.
IDLE_ENOUGH = 0.5
# Seconds of that interval. A test that has just started must show its use before the next one starts.
MOMENT = 0.5
# Seconds between checks for tests that have ended.
TICK = 0.05
# Seconds for the cleanup of an interrupted test.
SECONDS_TO_END = 60

CLONE_NEWNS, MS_REC, MS_PRIVATE, PR_SET_PDEATHSIG = 0x20000, 0x4000, 0x40000, 1


class Test:
    """One test. `body` is called in a separate process and returns its outcome, as a JSON value."""

    def __init__(self, name, body, processors=1, memory=USUAL_MEMORY, alone=False):
        self.name, self.body = name, body
        self.processors, self.memory, self.alone = processors, memory, alone


class Room:
    """Resources shared by all running tests: processors, memory in MiB, and at most `jobs` tests."""

    def __init__(self, processors, memory, jobs):
        self.processors, self.memory, self.jobs = processors, memory, jobs
        # Tests that only wait leave places for those that compute.
        self.places_to_wait = max(1, jobs - processors)

    @classmethod
    def of_machine(cls, jobs=None):
        """Resources of this machine."""
        processors = len(os.sched_getaffinity(0))
        return cls(processors, _available_memory(), jobs or 4 * processors)

    def fits(self, test, running, idle=0.0):
        """Returns whether a test may start in addition to the running ones. `idle` is the number of idle processors.
        A test that exceeds all resources starts when it would share them with no other test."""
        if not running:
            return True
        if test.alone or any(other.alone for other in running) or len(running) >= self.jobs:
            return False
        if test.processors:
            busy = sum(other.processors for other in running)
            if busy and busy + test.processors > self.processors and idle < IDLE_ENOUGH:
                return False
        elif sum(other.processors == 0 for other in running) >= self.places_to_wait:
            return False
        return sum(other.memory for other in running) + test.memory <= self.memory


class IdleMeter:
    """Number of idle processors of this process, from the kernel's counters."""

    def __init__(self, read=lambda: _idle_seconds(os.sched_getaffinity(0))):
        self._read = read
        self.restart()

    def restart(self):
        """Starts a new interval."""
        self._since, self._before = time.monotonic(), self._read()

    def idle(self):
        """Idle processors in the interval that has just ended, which starts a new one; 0 before its end."""
        seconds = time.monotonic() - self._since
        if seconds < MOMENT:
            return 0.0
        before = self._before
        self.restart()
        return (self._before - before) / seconds


class Ended:
    """End of a test's process: the result of `body`, or None and the reason; seconds; output."""

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
        """Body of the test's process. It does not return."""
        code = 1
        try:
            _libc().prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            signal.signal(signal.SIGTERM, _exit_once)
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
        except BaseException:  # the parent reads it from the output
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
            trouble = f"the process of the test ended with exit code {os.waitstatus_to_exitcode(status)}"
        shutil.rmtree(self.folder, ignore_errors=True)
        return Ended(self.test, outcome, trouble, seconds, usage.ru_utime + usage.ru_stime, said)


def order(tests, seed):
    """Orders the tests by a random draw from the seed. Tests with more processors come first, so that no processor
    is idle until enough others are free; tests that run alone come last."""
    tests = sorted(tests, key=lambda test: test.name)
    random.Random(seed).shuffle(tests)
    most = len(os.sched_getaffinity(0))
    return sorted(tests, key=lambda test: (test.alone, -min(test.processors, most)))


def pick(waiting, running, room, idle=0.0):
    """Index of the first waiting test that may start, or None. Only tests that need no processor overtake a test
    without free processors: otherwise a stream of smaller tests would starve it."""
    are_processors_due = False
    for i, test in enumerate(waiting):
        if room.fits(test, running, idle) and not (test.processors and are_processors_due):
            return i
        are_processors_due |= test.processors > 0
    return None


def run(tests, room, started, ended):
    """Runs all tests. `started` is called with the names of running tests, `ended` with an `Ended`."""
    waiting, processes, meter = list(tests), {}, IdleMeter()
    try:
        while waiting or processes:
            running = [one.test for one in processes.values()]
            idle = meter.idle()
            while (found := pick(waiting, running, room, idle)) is not None:
                one = _Started(waiting.pop(found))
                processes[one.pid] = one
                running.append(one.test)
                started([test.name for test in running])
                meter.restart()
                idle = 0.0
            # A blocking wait could start just after a signal's arrival, and Python would handle the signal only later.
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid in processes:
                ended(processes.pop(pid).collect(status, usage))
            elif not pid:
                time.sleep(TICK)
    finally:
        for pid, one in processes.items():
            _interrupt(pid)
            shutil.rmtree(one.folder, ignore_errors=True)


def _interrupt(pid):
    """Ends a test's process, which first ends the processes it has started. The signal is repeated, because the process
    may start a blocking call just after its arrival and would then handle it only after the call."""
    until = time.monotonic() + SECONDS_TO_END
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        os.kill(pid, signal.SIGTERM if time.monotonic() < until else signal.SIGKILL)
        time.sleep(TICK)


def _exit_once(*_):
    """Handles the first SIGTERM of a test's process. Later ones do not disturb the cleanup."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def _libc():
    return ctypes.CDLL(None, use_errno=True)


def _mount_own_shm():
    """Gives this process a private /dev/shm. Returns whether that is permitted."""
    libc = _libc()
    if libc.unshare(CLONE_NEWNS) != 0 or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) != 0:
        return False
    return libc.mount(b"none", b"/dev/shm", b"tmpfs", 0, b"mode=1777") == 0


def _idle_seconds(processors):
    """Sum of the idle seconds of these processors since boot."""
    ticks = 0
    with open("/proc/stat", encoding="ascii") as file:
        for line in file:
            words = line.split()
            if words[0][:3] == "cpu" and words[0][3:].isdigit() and int(words[0][3:]) in processors:
                ticks += int(words[4]) + int(words[5])
    return ticks / os.sysconf("SC_CLK_TCK")


def _available_memory():
    """Memory available to tests, in MiB."""
    with open("/proc/meminfo", encoding="ascii") as file:
        words = dict(line.split(":", 1) for line in file)
    return int(words["MemAvailable"].split()[0]) // 1024 * 3 // 4
