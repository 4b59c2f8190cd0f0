"""A program closes descriptors of the library and opens its own files under their numbers: the files stay unchanged,
and the job succeeds or ends with the cause."""

import glob
import os
import tempfile

from harness import job

MOMENTS = ["after init", "between messages", "before long messages", "before a window", "in a window", "before memory",
           "before a file", "in a file", "before a spawn", "before finalize"]
OWN = b"A" * (64 << 10)
CAUSE = "the program closed descriptor"
TCP = {"FASTPATH_TRANSPORTS": "tcp"}


def _run(session, moment, how, env):
    """Returns the outcome, and a line about a changed file of the program."""
    with tempfile.TemporaryDirectory(prefix="mpi-test-") as folder:
        words = [session.mpiexec, "-n", "2", "--timeout", "60", session.binary("descriptors_closed"), str(moment), how]
        outcome = job.run(words, env=env, cwd=folder)
        files = sorted(glob.glob(os.path.join(folder, "own.*")))
        if len(files) != 2 and outcome.code == 0:
            return outcome, f"{len(files)} files of two ranks"
        for name in files:
            with open(name, "rb") as file:
                found = file.read(len(OWN) + 1)
            # A rank that was ended may not have written all of its file.
            if found != OWN and (outcome.code == 0 or found.strip(b"A") or len(found) > len(OWN)):
                return outcome, f"the file of a rank has changed: {os.stat(name).st_size} bytes"
        return outcome, None


def _try(session, how, env, judge):
    for moment, name in enumerate(MOMENTS):
        outcome, changed = _run(session, moment, how, env)
        problem = changed or judge(outcome)
        if problem:
            return f"{name}: {problem}\n{outcome.text()}"
    return None


def _works(outcome):
    return outcome.problem()


def _works_or_says_why(outcome):
    if outcome.code == 0:
        return outcome.problem(quiet=False)
    if outcome.code is None or outcome.code == 124:
        return "it hangs"
    if outcome.left:
        return "left behind: " + "; ".join(outcome.left)
    return None if CAUSE in outcome.err or "its program closed the connection's descriptor" in outcome.err else "the cause is not named"


def case_low_ones_in_shared_memory(session):
    return _try(session, "low", None, _works)


def case_low_ones_over_tcp(session):
    return _try(session, "low", TCP, _works)


def case_all_in_shared_memory(session):
    return _try(session, "all", None, _works)


def case_all_over_tcp(session):
    return _try(session, "all", TCP, _works_or_says_why)
