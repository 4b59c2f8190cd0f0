"""FASTPATH_PROGRESS: its values, the report about the thread, and its end."""

import os
import re
import signal

from harness import processes
from harness.slices import sliced


def _run(session, value, ranks=2, words=("multiple",), **env):
    program = [session.binary("progress_random"), "7", *words]
    return session.mpirun(ranks, program, env={"FASTPATH_PROGRESS": value, **env}).finish()


def case_another_word_is_refused(session):
    outcome = _run(session, "threads")
    if outcome.code in (0, None):
        return f"exit code {outcome.code} for a word that is none"
    for wanted in ("FASTPATH_PROGRESS=threads", "thread", "none"):
        if wanted not in outcome.err:
            return f"{wanted!r} is not in the message: {outcome.err[:300]}"
    return None


def case_the_report_says_what_the_thread_did(session):
    outcome = _run(session, "thread", FASTPATH_REPORT="1")
    problem = outcome.problem(quiet=False)
    if problem:
        return problem
    lines = [line for line in outcome.err.splitlines() if "the progress thread (FASTPATH_PROGRESS=thread) took" in line]
    return None if len(lines) == 2 else f"{len(lines)} lines of 2 ranks: {outcome.err[-300:]}"


def case_none_is_none(session):
    outcome = _run(session, "none", FASTPATH_REPORT="1")
    return outcome.problem(quiet=False) or ("a line of a thread" if "progress thread" in outcome.err else None)


def case_a_deadlock_is_still_told(session):
    """The sleep of the thread is not counted as a wait of the program, at either level."""
    for how in ("ring", "multiple-any"):
        words = [session.binary("verdicts"), how]
        outcome = session.mpirun(2, words, timeout=5, env={"FASTPATH_PROGRESS": "thread"}).finish()
        if outcome.code is None or not re.search("deadlock(:| of )", outcome.err):
            return f"{how}: exit code {outcome.code}: {outcome.err[:300]}"
    return None


@sliced
def case_one_that_computes_is_in_no_deadlock(session):
    for how in ("work", "thread-works"):
        words = [session.binary("verdicts"), how]
        outcome = session.mpirun(2, words, timeout=5, env={"FASTPATH_PROGRESS": "thread"}).finish()
        if outcome.code is None or re.search("deadlock(:| of )", outcome.err):
            return f"{how}: exit code {outcome.code}: {outcome.err[:300]}"
    return None


def case_a_killed_peer_ends_the_job(session):
    """The job ends if a rank is killed, at different moments of messages that the thread moves."""
    program = [session.binary("progress_random"), "5", "single"]
    for turn in range(6):
        running = session.mpirun(2, program, env={"FASTPATH_PROGRESS": "thread"})
        victim = None
        while victim is None and running.process.poll() is None:
            victim = running.rank_process(turn % 2)
        if victim is None:
            return "it was over before anybody could be killed"
        _await_ticks(victim, 2 * turn)
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            continue
        outcome = running.finish()
        if outcome.code in (0, None) or outcome.left:
            return f"exit code {outcome.code}, left: {outcome.left}"
    return None


def _await_ticks(pid, ticks):
    """Returns when a process has used this much processor time, or is gone."""
    used = 0
    while used < ticks:
        fields = processes.stat(pid)
        if not fields:
            return
        used = int(fields[11]) + int(fields[12])


# The ranks of this case wait until their time limit.
case_a_deadlock_is_still_told.needs = {"processors": 0}
