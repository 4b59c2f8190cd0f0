"""SIGKILL to the guard processes of a job: each is replaced. A launcher killed together with its guard leaves
nothing, not even children of ranks."""

import errno
import os
import signal
import time

from harness import processes

from . import seccomp

# The jobs of this file only wait.
NEEDS = {"processors": 0}

LIMIT = 60
RANKS = 2


def _start(session):
    """A job whose ranks are shells with a child each, which the kernel does not end with its parent."""
    job = session.mpirun(RANKS, ["sh", "-c", "sleep 1000 & wait"])
    _await(lambda: len(_sleepers(job)) == RANKS and _find_guards(job))
    return job


def _sleepers(job):
    return [pid for pid, command in job.processes() if command.startswith("sleep")]


def _find_guards(job):
    """The guard and its deputy, or None: the launcher's child of that name, and its child."""
    guards = {}
    for pid, _ in job.processes():
        if processes.name(pid) == "mpi-guard":
            guards[processes.parent(pid)] = pid
    guard = guards.get(job.process.pid)
    return (guard, guards[guard]) if guard in guards else None


def _await(condition):
    """Waits until a function returns a true value, and returns that."""
    end = time.monotonic() + LIMIT
    while not (found := condition()):
        if time.monotonic() > end:
            raise RuntimeError("the job does not get there")
        time.sleep(0.01)
    return found


def _kill(*pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _end(job, notices):
    """Returns what is wrong after the launcher was killed: live processes, or the number of notices."""
    job.process.wait(LIMIT)
    if not job.wait_gone(LIMIT):
        return f"still there: {job.processes()}"
    outcome = job.finish()
    said = outcome.err.count("the guard process, which ends the job if mpiexec is killed, was ended by signal 9, SIGKILL")
    if said != notices or outcome.err.count("\n") != notices:
        return f"{notices} notices are missing: {outcome.text()}"
    return outcome.problem(-signal.SIGKILL, quiet=False)


def case_launcher_and_guard(session):
    for is_launcher_first in (True, False):
        job = _start(session)
        victims = [job.process.pid, _find_guards(job)[0]]
        _kill(*(victims if is_launcher_first else victims[::-1]))
        job.process.wait(LIMIT)
        if not job.wait_gone(LIMIT):
            return f"still there: {job.processes()}"
        problem = job.finish().problem(-signal.SIGKILL, quiet=False)
        if problem:
            return problem
    return None


def case_launcher_and_deputy(session):
    job = _start(session)
    _kill(_find_guards(job)[1], job.process.pid)
    return _end(job, 0)


def case_replaced(session):
    """Guard and deputy are killed in turn, and the job remains guarded."""
    job = _start(session)
    for victim in (0, 1, 0):
        old = _find_guards(job)
        _kill(old[victim])
        _await(lambda: (new := _find_guards(job)) and new[victim] != old[victim])
    # The deputy of a replaced guard is no longer needed. Ranks without dedicated processors have a session leader.
    _await(lambda: sum(processes.name(pid) != "mpi-session" for pid, _ in job.processes()) == 2 * RANKS + 2)
    _kill(job.process.pid, _find_guards(job)[0])
    return _end(job, 2)


def case_without_prctl(session):
    """The kernel does not end the ranks of a killed launcher where prctl is refused. The guard does."""
    matrix = seccomp.Matrix(session)
    for ranks in (1, 4):
        refuse = [matrix.refuse, str(errno.EPERM), matrix.numbers["prctl"], "--"]
        job = session.start([*refuse, session.mpiexec, "-n", str(ranks), "sleep", "1000"], timeout=2 * LIMIT)
        _await(lambda: len(_sleepers(job)) == ranks)
        _kill(job.process.pid)
        if problem := _end(job, 0):
            return problem
    return None


def case_by_command_line(session):
    """`pkill -f` with a word of the launcher's command line does not match the guard."""
    job = _start(session)
    named = [pid for pid, command in job.processes() if "mpiexec" in command or "1000 & wait" in command]
    if set(named) & set(_find_guards(job)):
        return f"the guard is found by the launcher's command line: {job.processes()}"
    _kill(job.process.pid, *named)
    return _end(job, 0)
