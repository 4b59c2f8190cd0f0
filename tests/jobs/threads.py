"""Threads of MPI_THREAD_MULTIPLE: random calls of all kinds, and SIGKILL of a rank while threads of the others wait.
MPI_TEST_SEED=N starts with another seed; a failure prints its seed."""

import errno
import json
import os
import signal
import time

from harness import processes
from harness.seeds import repeat
from jobs.killed import WAYS, _kill
from jobs.seccomp import Matrix

# The jobs of this file have several ranks, which compute or spin.
NEEDS = {"processors": 2}

# Further wait modes and transports, each of which changes where threads contend.
STRESSED = [*WAYS, {"FASTPATH_WAIT": "spin"}, {"FASTPATH_DISABLE": "drain,oversubscription"}, {"FASTPATH_UNEXPECTED_MAX": "64K"},
            {"FASTPATH_DISABLE": "prefetch,demote,pause,adapt"}, {"FASTPATH_DISABLE": "sendi,recvi"},
            {"FASTPATH_DISABLE": "bias"}]


def case_stress(session):
    """Up to 16 threads of each rank; every message, result and status is checked."""
    def one(chance, seed):
        ranks = chance.choice([1, 2, 2, 2, 3, 4])
        threads = chance.choice([2, 3, 4, 8, 16])
        rounds = 40 if session.everything else 12
        env = chance.choice(STRESSED)
        words = [session.binary("threads_stress"), str(seed), str(threads), str(rounds)]
        outcome = session.mpirun(ranks, words, timeout=120, env=env).finish()
        # A bound that is reached is reported once by each rank.
        told = [line for line in outcome.err.splitlines() if "the limit of FASTPATH_UNEXPECTED_MAX" not in line]
        problem = outcome.problem(quiet=False) or (told and f"it prints {told[0]}")
        return (f"{ranks} ranks, {threads} threads, {env}: {problem}", outcome.text()) if problem else None

    return repeat(session, 6, 100, one)


def _threads_of(pid):
    """State of each thread of a process."""
    fields = [processes.stat(pid, thread) for thread in os.listdir(f"/proc/{pid}/task")]
    return [one[0] for one in fields if one]


def case_killed(session):
    """A rank is killed at a random moment: while its threads work, or sleep for others that sleep. The job ends, the
    rank is named, and nothing is left."""
    def one(chance, seed):
        ranks = chance.choice([2, 2, 3, 4])
        # With 1 << 20 rounds it does not end by itself. Its own error handler would catch that a rank is gone.
        how = [str(seed), str(chance.choice([2, 4, 8])), str(1 << 20), "fatal"]
        job = session.mpirun(ranks, [session.binary("threads_stress"), *how], env=chance.choice(WAYS))
        time.sleep(chance.choice([0, 0.05, 0.3]) * chance.random())  # a moment, not a state
        found, threads = [], chance.choice([1, 2])
        while job.process.poll() is None:
            numbers = [(processes.rank(pid), pid) for pid, _ in job.processes()]
            found = [(rank, pid) for rank, pid in numbers if rank is not None]
            try:
                if found and all(len(_threads_of(pid)) >= threads for _, pid in found):
                    break
            except OSError:
                pass  # it has just executed another program
        rank, pid = chance.choice(found)
        stopped = chance.random() < 0.3
        if stopped:
            # All threads of the others have time to wait for it.
            os.kill(pid, signal.SIGSTOP)
            others = [pid for other, pid in found if other != rank]
            deadline = time.monotonic() + 20
            while any("R" in _threads_of(pid) for pid in others) and time.monotonic() < deadline:
                time.sleep(0.01)
        _kill(pid)
        outcome = job.finish()
        problem = outcome.problem(128 + signal.SIGKILL, quiet=False)
        said = [line for line in outcome.err.splitlines() if line.strip()]
        if not problem and not (said and said[0].startswith(f"mpiexec: rank {rank} on ") and "SIGKILL" in said[0]):
            problem = f"killed rank {rank}, but the report is {said[:1]}"
        if not problem and any(not line.startswith("mpiexec: ") for line in said):
            problem = "a rank printed a report too"
        return (problem, outcome.text()) if problem else None

    return repeat(session, 5, 60, one)


def case_the_report_says_each_level(session):
    """The granted thread level, as text and as JSON, also if no thread can be created; with a lock, its cost."""
    def run(form, **env):
        # Ranks 0 and 1 request MPI_THREAD_MULTIPLE, rank 2 requests MPI_THREAD_SINGLE.
        env = {"FASTPATH_REPORT": form, **env}
        outcome = session.mpirun(3, [session.binary("threads_levels")], timeout=60, env=env).finish()
        return outcome, outcome.problem(quiet=False)

    many, one = "MPI_THREAD_MULTIPLE", "MPI_THREAD_SINGLE"
    for env, locked in (({}, (True, True, False)), ({"FASTPATH_PROGRESS": "thread"}, (True, True, True))):
        outcome, problem = run("1", **env)
        if problem:
            return problem, outcome.text()
        for rank, (level, lock) in enumerate(zip((many, many, one), locked)):
            said = [line for line in outcome.err.splitlines() if f"fastpath: rank {rank}: with MPI_THREAD_" in line]
            begin = f"fastpath: rank {rank}: with {level}, "
            if len(said) != 1 or not said[0].startswith(begin) or ("no lock" in said[0]) == lock:
                return f"rank {rank} reports {said}, {env}", outcome.text()
            if lock and "threads found the lock taken" not in said[0]:
                return f"no contention in {said}, {env}", outcome.text()
        outcome, problem = run("json", **env)
        if problem:
            return problem, outcome.text()
        objects = [json.loads(line) for line in outcome.err.splitlines() if line.startswith('{"rank":')]
        threads = {said["rank"]: said["threads"] for said in objects if "threads" in said}
        for rank, (level, lock) in enumerate(zip((many, many, one), locked)):
            said = threads.get(rank, {})
            counted = all(name in said for name in ("biased", "revocations", "contended"))
            if said.get("level") != level or counted != lock:
                return f"rank {rank} reports {said} in JSON, {env}", outcome.text()
    return None


def case_without_membarrier(session):
    """The kernel refuses membarrier: the lock is never biased, and threads take the ordinary lock in turn."""
    matrix = Matrix(session)
    refuse = [matrix.refuse, str(errno.ENOSYS), matrix.numbers["membarrier"], "--"]
    for name in ("threads_passing", "threads_stress"):
        words = [*refuse, session.mpiexec, "-n", "2", session.binary(name)]
        outcome = session.start(words, timeout=60, env={"FASTPATH_REPORT": "1"}).finish()
        problem = outcome.problem(quiet=False)
        if not problem and outcome.err.count(": with MPI_THREAD_MULTIPLE, the lock is not biased") != 2:
            problem = "the report does not say that the lock is not biased"
        if problem:
            return f"{name}: {problem}", outcome.text()
    return None
