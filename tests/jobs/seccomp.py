"""System calls that a container refuses (EPERM, ENOSYS), one at a time and together: a job runs, or reports the reason.

The lists hold every system call of launcher and ranks. `case_no_other_call` refuses all others and so shows that the
lists are complete. A new call belongs in one of them. Names that this machine's architecture lacks are left out.
"""

import errno
import os
import re
import subprocess

from harness import program
from harness.slices import sliced

ERRORS = [errno.EPERM, errno.ENOSYS]

# Without any of these, and without all of them, a job runs.
DISPENSABLE = """
    memfd_create fallocate prctl access faccessat faccessat2 prlimit64 dup3 close_range setsid
    futex membarrier sched_yield sched_setaffinity sched_getaffinity process_vm_readv process_vm_writev
    getrandom getcwd statx readlink readlinkat uname sysinfo geteuid getuid gettid ioctl statfs fstatfs
    sigaltstack brk munmap set_robust_list rseq set_tid_address exit_group socket bind listen
    """.split()

# Fallbacks of other calls: a job runs if one of these is refused alone, but not if its alternative is refused too.
FALLBACKS = ["madvise"]

# Without one of these a job cannot run, and the launcher names it.
NEEDED = """
    fcntl ftruncate pipe2 clone setpgid dup2 kill wait4 ppoll rt_sigprocmask getpid getppid
    """.split()

# These are not refused here: without them a program reaches neither its first instruction nor its end. The dynamic
# loader and the C library need execve openat read pread64 close fstat newfstatat mmap mprotect arch_prctl. Rust's
# runtime needs poll rt_sigaction before main. Signal handlers need rt_sigreturn, and all output needs write.
BEFORE_MAIN = """
    execve openat read pread64 close fstat newfstatat mmap mprotect arch_prctl poll rt_sigaction rt_sigreturn write
    """.split()

# Argument of the job, and its exit code.
ENDS = {"all": 0, "abort": 7}
WAITS = {"wait": 124}


def _read_numbers():
    """Numbers of the system calls by name, from the compiler's headers."""
    command = ["cc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", os.devnull]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: number for name, number in re.findall(r"^#define __NR_(\w+) (\d+)$", text, re.MULTILINE)}


class Matrix:
    """Runs jobs with calls refused."""

    def __init__(self, session):
        self.session, self.numbers = session, _read_numbers()
        self.refuse = os.path.join(session.build, "refuse")
        self.container = session.binary("container")
        source = os.path.join(os.path.dirname(program.__file__), "refuse.c")
        complaint = program.build(self.refuse, ["cc", "-O1", "-Wall", "-Werror", "-o", self.refuse, source], [source])
        if complaint:
            raise RuntimeError(complaint)

    def there(self, names):
        return [name for name in names if name in self.numbers]

    def run(self, error, names, what="all", ranks=4, but=False, env=None, options=()):
        numbers = [self.numbers[name] for name in self.there(names)]
        refuse = [self.refuse, str(error), *(["--but"] if but else []), *numbers, "--"]
        options = [*options, *(["--timeout", "0.2"] if what == "wait" else [])]
        mpiexec = [self.session.mpiexec, "-n", str(ranks), *options, self.container, what]
        return self.session.start([*refuse, *mpiexec], timeout=20, env=env or {})

    def look_well(self, error, names, what="all", ranks=4, **more):
        """Returns what is wrong with a job that must succeed."""
        outcome = self.run(error, names, what, ranks, **more).finish()
        problem = outcome.problem({**ENDS, **WAITS}[what], quiet=what == "all")
        if not problem and what == "all" and outcome.out.count("is well") != ranks:
            problem = "output is missing"
        return self.told(problem, error, names, what, ranks, outcome)

    def look_explained(self, error, name, what="all", ranks=4):
        """Returns what is wrong with a job that must report that it cannot run without a call."""
        # Dedicated ranks have sessions, and need no process group.
        outcome = self.run(error, [name], what, ranks, options=["--bind-to", "none"]).finish()
        said = [line for line in outcome.err.splitlines() if line.startswith("mpiexec: ")]
        problem = outcome.problem(1, quiet=False)
        if not problem and not any(re.search(rf"\b{name}\b", line) and "seccomp" in line for line in said):
            problem = "the launcher does not say why"
        return self.told(problem, error, [name], what, ranks, outcome)

    def told(self, problem, error, names, what, ranks, outcome):
        if not problem:
            return None
        which = ", ".join(names) if len(names) < 4 else f"{len(names)} calls"
        return f"{which} refused with {errno.errorcode[error]}, {ranks} ranks, {what}: {problem}", outcome.text()


def _first(answers):
    """Returns the first problem."""
    return next((answer for answer in answers if answer), None)


@sliced
def case_one_at_a_time(session):
    matrix = Matrix(session)
    well = [matrix.look_well(error, [name]) for name in matrix.there(DISPENSABLE + FALLBACKS) for error in ERRORS]
    explained = [matrix.look_explained(error, name) for name in matrix.there(NEEDED) for error in ERRORS]
    return _first(well + explained)


def case_all_at_once(session):
    matrix = Matrix(session)
    answers = [matrix.look_well(error, DISPENSABLE, what, ranks)
               for error in ERRORS for what in [*ENDS, *WAITS] for ranks in (1, 2, 4)]
    return _first(answers)


def case_all_at_once_with_fallbacks(session):
    """No call can provide the job's memory: the report names the calls that would."""
    matrix = Matrix(session)
    for error in ERRORS:
        outcome = matrix.run(error, DISPENSABLE + FALLBACKS).finish()
        problem = outcome.problem(1, quiet=False)
        if problem or "fallocate:" not in outcome.err or "seccomp" not in outcome.err:
            return matrix.told(problem or "the launcher does not say why", error, DISPENSABLE, "all", 4, outcome)
    return None


def case_no_other_call(session):
    """Every call that the job makes is in one of the lists."""
    matrix = Matrix(session)
    listed = DISPENSABLE + FALLBACKS + NEEDED + BEFORE_MAIN
    return _first(matrix.look_well(error, listed, what, but=True) for error in ERRORS for what in [*ENDS, *WAITS])


def case_ends(session):
    """A job that aborts or hangs is ended in time, and one that sleeps, yields or spins runs."""
    matrix = Matrix(session)
    names = matrix.there(DISPENSABLE + FALLBACKS)
    answers = [matrix.look_well(error, [name], what, 2) for name in names for error in ERRORS
               for what in ("abort", "wait")]
    for mode in ("sleep", "yield", "spin"):
        answers += [matrix.look_well(error, [name], "all", 2, env={"FASTPATH_WAIT": mode})
                    for name in names for error in ERRORS]
    return _first(answers)


def case_other_numbers_of_ranks(session):
    matrix = Matrix(session)
    well = [matrix.look_well(error, [name], "all", ranks) for name in matrix.there(DISPENSABLE + FALLBACKS)
            for error in ERRORS for ranks in (1, 2)]
    explained = [matrix.look_explained(error, name, what, ranks) for name in matrix.there(NEEDED) for error in ERRORS
                 for ranks in (1, 2) for what in [*ENDS, *WAITS]]
    return _first(well + explained)


case_ends.long = case_other_numbers_of_ranks.long = True
