"""Random tests, run in sequence, each from its own seed."""

import os
import random


def repeat(session, few, many, one):
    """Runs `one(chance, seed)` `times` times; returns the first problem with its seed, and the job's output."""
    first = int(os.environ.get("MPI_TEST_SEED", "1"))
    for seed in range(first, first + (many if session.everything else few)):
        answer = one(random.Random(seed), seed)
        if answer:
            problem, log = answer
            return f"MPI_TEST_SEED={seed}: {problem}", log
    return None
