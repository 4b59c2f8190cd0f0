"""Unexpected messages beyond the bound: the first receiver that reaches it reports it once in the job, with counts."""

import re

from harness import job


def case_it_is_told_once(session):
    bound = {"FASTPATH_UNEXPECTED_MAX": "64K"}
    words = [session.mpiexec, "-n", "2", "--timeout", "60", session.binary("pt2pt_flooded"), "20000"]
    outcome = job.run(words, env=bound)
    problem = outcome.problem(quiet=False)
    if problem:
        return problem
    lines = [line for line in outcome.err.splitlines() if "FASTPATH_UNEXPECTED_MAX=65536" in line]
    told = [re.search(r"rank (\d) on \S+ holds 512 unexpected messages of 65536 bytes, ", line) for line in lines]
    if not all(told):
        return f"no counts: {lines}"
    # Both ranks are flooded in turn; the report of the second one would repeat that of the first.
    if len(told) != 1:
        return f"not reported once in the job: {lines}"
    return None
