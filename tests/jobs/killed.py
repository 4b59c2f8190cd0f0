"""SIGKILL at random moments of a job with all-to-all traffic: to some ranks, to the launcher, to all processes at
once. The first failed rank is named, the exit code is right, and no process is left. The moments come from seeds
that a failure prints; MPI_TEST_SEED=N starts with another one."""

import os
import signal
import time

from harness import processes
from harness.seeds import repeat

# The jobs of this file have several ranks, which compute or spin.
NEEDS = {"processors": 2}

WAYS = [{}, {"FASTPATH_WAIT": "sleep"}, {"FASTPATH_WAIT": "yield"}, {"FASTPATH_DISABLE": "cma"},
        {"FASTPATH_DISABLE": "sendi,recvi,direct"}, {"FASTPATH_TRANSPORTS": "tcp"},
        {"FASTPATH_TRANSPORTS": "tcp", "FASTPATH_WAIT": "sleep"}]


def _start(session, chance, seed):
    """Starts a job with traffic and returns, at a random moment, the job and its live ranks: number and process."""
    ranks = chance.choice([2, 3, 4, 4, 7])
    job = session.mpirun(ranks, [session.binary("traffic"), str(seed)], env=chance.choice(WAYS))
    time.sleep(chance.choice([0, 0.02, 0.1, 0.4]) * chance.random())  # a moment, not a state
    found = []
    while not found and job.process.poll() is None:
        numbers = [(processes.rank(pid), pid) for pid, _ in job.processes()]
        found = [(rank, pid) for rank, pid in numbers if rank is not None]
    return job, found


def _kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def case_ranks(session):
    def one(chance, seed):
        job, found = _start(session, chance, seed)
        victims = chance.sample(found, min(len(found), chance.choice([1, 1, 2, 3])))
        for _, pid in victims:
            _kill(pid)
        outcome = job.finish()
        problem = outcome.problem(128 + signal.SIGKILL, quiet=False)
        if problem:
            return problem, outcome.text()
        named = [line for line in outcome.err.splitlines() if line.startswith("mpiexec: rank ") and "SIGKILL" in line]
        if len(named) != 1 or not any(named[0].startswith(f"mpiexec: rank {rank} on ") for rank, _ in victims):
            return f"killed {sorted(rank for rank, _ in victims)}, but the report names another", outcome.text()
        strange = [line for line in outcome.err.splitlines() if not line.startswith("mpiexec: rank ")]
        return (f"more than the first failure was reported: {strange[0]}", outcome.text()) if strange else None

    return repeat(session, 8, 80, one)


def _kill_with_launcher(session, few, many, choose):
    """Kills victims that include the launcher: no report is possible, but no process may stay."""
    def one(chance, seed):
        job, found = _start(session, chance, seed)
        pids = [*choose(chance, job, found), job.process.pid]
        chance.shuffle(pids)
        for pid in pids:
            _kill(pid)
        job.process.wait(60)
        if not job.wait_gone(60):
            return f"still there: {job.processes()}", ""
        # The launcher may have reported a rank, and even ended, before it was killed itself.
        outcome = job.finish()
        ends = (-signal.SIGKILL, 128 + signal.SIGKILL)
        problem = outcome.problem(outcome.code if outcome.code in ends else ends[0], quiet=False)
        return (problem, outcome.text()) if problem else None

    return repeat(session, few, many, one)


def case_everything(session):
    return _kill_with_launcher(session, 4, 40, lambda chance, job, found: [pid for pid, _ in job.processes()])


def case_launcher_and_ranks(session):
    def some(chance, job, found):
        return [pid for _, pid in chance.sample(found, chance.randrange(len(found) + 1))]

    return _kill_with_launcher(session, 4, 40, some)


def case_undisturbed(session):
    """Runs the traffic to its end, to verify that it is right without a kill."""
    for ranks, seed in [(2, 1), (3, 2), (4, 3)]:
        problem = session.mpirun(ranks, [session.binary("traffic"), str(seed), "300"]).finish().problem()
        if problem:
            return problem
    return None
