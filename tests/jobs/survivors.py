"""Jobs that tolerate failures and lose many ranks at random moments: the examples (`examples/task_farm.c`,
`examples/buddy_stencil.c`), whose results stay right, and a program that repairs its communicator. Spawned ranks whose
parents die."""

import os
import re
import signal
import time

from harness import processes, program
from harness.seeds import repeat

# The jobs of this file have several ranks, which compute or spin.
NEEDS = {"processors": 2}

EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "examples")
KILLED = 128 + signal.SIGKILL
WAYS = [{}, {}, {"FASTPATH_WAIT": "sleep"}, {"FASTPATH_TRANSPORTS": "tcp"}]


def _compile(session, name):
    """Returns the compiled example and the compiler's complaint."""
    source, binary = os.path.join(EXAMPLES, f"{name}.c"), os.path.join(session.build, name)
    return binary, program.build(binary, [session.mpicc, *program.FLAGS, "-o", binary, source], [source])


def _kill_ranks(chance, job, kills, seconds, may_kill):
    """Kills up to `kills` ranks that `may_kill` allows, with random pauses; returns how many."""
    killed = 0
    for _ in range(kills):
        time.sleep(chance.random() * chance.choice([seconds / 10, seconds]))  # a moment, not a state
        victims = [pid for pid, _ in job.processes() if processes.rank(pid) is not None and may_kill(pid)]
        if len(victims) > 1:
            try:
                os.kill(chance.choice(victims), signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                pass
    return killed


def _problem(outcome):
    """What is wrong with the end of the job. The exit code is that of a rank killed after its MPI_Finalize, if any."""
    return outcome.problem(KILLED if outcome.code == KILLED else 0, quiet=False)


def case_task_farm(session):
    """Workers are killed. The number of primes is right, and each task counts once."""
    binary, complaint = _compile(session, "task_farm")
    if complaint:
        return f"it does not compile: {complaint}"

    def one(chance, seed):
        ranks, replacements = chance.choice([2, 3, 4, 8]), chance.choice([0, 2, 8])
        job = session.mpirun(ranks, [binary, "800", str(replacements)], options=["--with-ft", "ulfm"],
                             env=chance.choice(WAYS))
        _kill_ranks(chance, job, chance.randrange(1, 7), 0.2, lambda pid: processes.rank(pid) != 0)
        outcome = job.finish()
        problem = _problem(outcome)
        if not problem and "checked: there are 121127 primes below 1600000" not in outcome.out:
            problem = "the count is missing or wrong"
        return (problem, outcome.text()) if problem else None

    return repeat(session, 6, 200, one)


def case_buddy_stencil(session):
    """Ranks are killed, first and spawned ones. All parts equal those of a run without deaths."""
    binary, complaint = _compile(session, "buddy_stencil")
    if complaint:
        return f"it does not compile: {complaint}"

    def one(chance, seed):
        ranks = chance.choice([2, 3, 4, 8])
        # A new rank cannot go on alone before it has joined, so one of the first ranks lives.
        kept = chance.randrange(ranks)
        job = session.mpirun(ranks, [binary, "3000", "500"], options=["--with-ft", "ulfm"], env=chance.choice(WAYS))
        killed = _kill_ranks(chance, job, chance.randrange(1, 5), 0.2, lambda pid: processes.rank(pid) != kept)
        outcome = job.finish()
        problem = _problem(outcome)
        places = re.findall(rf"^checked: place (\d+) of {ranks} after \d+ repairs$", outcome.out, re.MULTILINE)
        # A rank may die after its result is known to the others.
        if not problem and ("WRONG" in outcome.out or not ranks - killed <= len(set(places)) <= ranks or not places):
            problem = f"the places {places} are right, after {killed} kills"
        return (problem, outcome.text()) if problem else None

    return repeat(session, 6, 200, one)


def case_storm(session):
    """Seven of eight ranks are killed, in a program that repairs its communicator and checks its sums. With --all more
    than 1,000 ranks are killed."""
    def one(chance, seed):
        job = session.mpirun(8, [session.binary("survivor"), str(seed)], options=["--with-ft", "ulfm"],
                             env=chance.choice(WAYS))
        killed = _kill_ranks(chance, job, 7, 0.3, lambda pid: True)
        job.process.send_signal(signal.SIGUSR1)  # ends the program
        outcome = job.finish()
        problem = outcome.problem(0, quiet=False)
        reported = len(re.findall(r"^mpiexec: rank \d+ on .* was ended by signal 9", outcome.err, re.MULTILINE))
        if not problem and ("wrong" in outcome.out + outcome.err or reported != killed):
            problem = f"wrong data, or {reported} deaths are reported after {killed} kills"
        return (problem, outcome.text()) if problem else None

    return repeat(session, 1, 150, one)


def case_orphan(session):
    """Spawned ranks whose parent dies before their MPI_Init do not end the job."""
    for env in [{}, {"FASTPATH_TRANSPORTS": "tcp"}]:
        outcome = session.mpirun(3, [session.binary("orphan")], options=["--with-ft", "ulfm"], env=env).finish()
        problem = outcome.problem(0, quiet=False)
        if problem or "aborted the job" in outcome.err:
            return f"{env}: {problem}", outcome.text()
    return None
