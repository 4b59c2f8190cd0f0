"""Starts jobs under a watchdog, and finds what they leave behind."""

import contextlib
import itertools
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

from harness import processes

# Each process of a job has this variable, so that stray processes are found.
MARK = "MPI_TEST_MARK"

# Seconds after the launcher's --timeout until the watchdog ends the job.
GRACE = 20

_numbers = itertools.count()
_unfinished = set()


def end_unfinished():
    """Ends jobs that a test has started and not finished."""
    for job in list(_unfinished):
        job.kill_all()
        shutil.rmtree(job.tmp, ignore_errors=True)


class Outcome:
    """End of a job: exit code (negative: signal; None: ended by the watchdog), output, processes left."""

    def __init__(self, code, out, err, left, seconds):
        self.code, self.out, self.err, self.left, self.seconds = code, out, err, left, seconds

    def problem(self, code=0, quiet=True):
        """Returns one line about what is wrong, or None. `quiet`: standard error must be empty."""
        if self.code is None:
            return "hangs: ended by the watchdog" + self._first_line()
        if self.code != code:
            return f"exit code {self.code} instead of {code}" + self._first_line()
        if quiet and self.err.strip():
            return "a healthy run prints to standard error" + self._first_line()
        if self.left:
            return "left behind: " + "; ".join(self.left)
        return None

    def _first_line(self):
        """Most informative line of the output: a failed check, the cause of an error, or any line."""
        lines = [line.strip() for line in (self.err + "\n" + self.out).splitlines() if line.strip()]
        checks = [line for line in lines if not line.startswith("mpiexec:")]
        causes = [line for line in lines if "cause:" in line]
        return "".join(": " + line[:300] for line in (checks or causes or lines)[:1])

    def text(self):
        return f"exit code {self.code}\n--- standard output\n{self.out}\n--- standard error\n{self.err}\n--- left: {self.left}\n"


class Running:
    """A running job. `finish` waits for it; afterwards none of its processes may be left."""

    def __init__(self, words, env=None, timeout=60, stdin=subprocess.DEVNULL, cwd=None):
        self.mark = f"{os.getpid()}-{next(_numbers)}"
        self.tmp = tempfile.mkdtemp(prefix="mpi-test-")
        self.shm = _shared_names()
        self.timeout = timeout
        self.since = time.monotonic()
        whole = {k: v for k, v in os.environ.items() if not k.startswith("FASTPATH_")}
        whole.pop("OMP_NUM_THREADS", None)
        whole.update({MARK: self.mark, "TMPDIR": self.tmp})
        whole.update(env or {})
        # Files instead of pipes: a stray process must not block the reader.
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            words, env=whole, stdin=stdin, stdout=self.out, stderr=self.err, cwd=cwd, start_new_session=True)
        _unfinished.add(self)

    def await_end(self, seconds):
        """Waits for the job, and equally long for processes that it started: some launchers end before their ranks."""
        try:
            self.process.wait(self.timeout + GRACE)
        except subprocess.TimeoutExpired:
            return
        self.wait_gone(seconds)

    def finish(self):
        try:
            code = self.process.wait(self.timeout + GRACE)
        except subprocess.TimeoutExpired:
            code = None
            self.kill_all()
            self.process.wait()
        except BaseException:  # the runner is ended
            self.kill_all()
            raise
        return self._collect(code)

    def _collect(self, code):
        left = self.leftovers()
        self.kill_all()
        seconds = time.monotonic() - self.since
        outcome = Outcome(code, _read(self.out), _read(self.err), left, seconds)
        shutil.rmtree(self.tmp, ignore_errors=True)
        _unfinished.discard(self)
        return outcome

    def processes(self):
        """Live processes of this job, except the one that was started: pid and command."""
        return list(processes.find(self._has_started).items())

    def _has_started(self, pid):
        return pid != self.process.pid and processes.variable(pid, MARK) == self.mark

    def rank_process(self, rank):
        """Process id of a rank, or None."""
        return next((pid for pid, _ in self.processes() if processes.rank(pid) == rank), None)

    def leftovers(self):
        left = [f"process {pid} ({command})" for pid, command in self.processes()]
        left += [f"{os.path.join(self.tmp, name)}" for name in os.listdir(self.tmp)]
        left += [f"/dev/shm/{name}" for name in sorted(_shared_names() - self.shm)]
        return left

    def kill_all(self):
        for pid, _ in self.processes():
            _kill(pid, signal.SIGKILL)
        if self.process.poll() is None:
            _kill(self.process.pid, signal.SIGKILL)

    def wait_gone(self, seconds, but=lambda pid: False):
        """Waits until only the started process and the excepted ones are left; returns whether that was reached."""
        end = time.monotonic() + seconds
        while not all(but(pid) for pid, _ in self.processes()):
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True


def run(words, **options):
    """Runs a job to its end."""
    return Running(words, **options).finish()


def _kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _read(file):
    file.seek(0)
    text = file.read().decode(errors="replace")
    file.close()
    return text


def has_own_shm():
    """Returns whether /dev/shm is private to this run, so that new names in it belong to it."""
    return os.environ.get("MPI_TEST_OWN_SHM") == "1"


def _shared_names():
    return set(os.listdir("/dev/shm")) if has_own_shm() else set()


def signal_all(pids, number):
    """Sends a signal to each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def await_word(job, path):
    """Text that a job writes to a fifo before it closes it; empty if the job ends before."""
    fifo, poller, said = os.open(path, os.O_RDONLY | os.O_NONBLOCK), select.poll(), b""
    poller.register(fifo, select.POLLIN)
    try:
        while True:
            # Without a writer a read returns neither data nor end of file.
            if poller.poll(50):
                part = os.read(fifo, 100)
                if not part:
                    return said.decode()
                said += part
            elif job.process.poll() is not None:
                return ""
    finally:
        os.close(fifo)
