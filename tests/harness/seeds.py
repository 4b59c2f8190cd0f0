"""Programs that are drawn: one after the other, each from its own seed."""

import os
import random


def repeat(session, few, many, one):
    """Runs `one(chance, seed)` so many times; the first problem, with its seed, and what the job said."""
    first = int(os.environ.get("MPI_TEST_SEED", "1"))
    for seed in range(first, first + (many if session.everything else few)):
        answer = one(random.Random(seed), seed)
        if answer:
            problem, log = answer
            return f"MPI_TEST_SEED={seed}: {problem}", log
    return None
