"""The random programs of tests/c/*/*_soak.c with random seeds, ranks and settings, on one host and on two virtual
ones. MPI_TEST_SEED=N starts with another seed; a failure prints its seed, which the program takes as its argument."""

from harness.seeds import repeat

# The jobs of this file have several ranks, which compute or spin.
NEEDS = {"processors": 2}

DISABLED = ["sendi", "recvi", "directed", "immediate-datatype", "cma", "direct", "pipeline", "prefetch", "demote", "recycle",
            "pause", "drain", "adapt", "oversubscription", "resolve-once", "tx-gate", "whole", "repeat", "spin-budget",
            "bulk", "sendi,recvi,directed,immediate-datatype", "cma,direct", "cma,pipeline", "recycle,adapt", "cma,adapt"]
SETTINGS = [{}, {}, *({"FASTPATH_DISABLE": names} for names in DISABLED),
            {"FASTPATH_PROGRESS": "thread"}, {"FASTPATH_PROGRESS": "thread", "FASTPATH_WAIT": "sleep"},
            {"FASTPATH_WAIT": "sleep"}, {"FASTPATH_WAIT": "yield"}, {"FASTPATH_EAGER_MAX": "48"},
            {"FASTPATH_EAGER_MAX": "32K"}, {"FASTPATH_PIPELINE_CHUNK": "256"},
            {"FASTPATH_PIPELINE_CHUNK": "32704", "FASTPATH_DISABLE": "cma"}, {"FASTPATH_UNEXPECTED_MAX": "4K"},
            {"FASTPATH_TRANSPORTS": "tcp"}, {"FASTPATH_TRANSPORTS": "tcp", "FASTPATH_WAIT": "sleep"},
            {"FASTPATH_TRANSPORTS": "tcp", "FASTPATH_UNEXPECTED_MAX": "64K"}, {"FASTPATH_TRANSPORTS": "loopback,shm"}]


def _words(session, chance, program, ranks, hosts):
    """The command: all ranks on one host, or on two without an adapter."""
    if not hosts:
        return [session.mpiexec, "--timeout", "120", "-n", str(ranks), *program]
    first = chance.randint(1, ranks - 1)
    return [session.mpiexec, "--timeout", "120", "--virtual-host", "a", "-n", str(first), *program,
            ":", "--virtual-host", "b", "-n", str(ranks - first), *program]


def _make(name, most, few, many):
    def one(session, chance, seed):
        env, ranks = dict(chance.choice(SETTINGS)), chance.choice([n for n in (2, 2, 2, 3, 4, 5, 8) if n <= most])
        hosts = chance.random() < 0.25 and "FASTPATH_TRANSPORTS" not in env
        if hosts:
            env["FASTPATH_DEVICE"] = "no_such_9"
        program = [session.binary(name), str(seed), str(chance.choice([1, 2, 3]))]
        words = _words(session, chance, program, ranks, hosts)
        outcome = session.start(words, env=env, timeout=120).finish()
        # A bound that is reached is reported once by each rank.
        told = [line for line in outcome.err.splitlines() if "the limit of FASTPATH_UNEXPECTED_MAX" not in line]
        problem = outcome.problem(quiet=False) or (told and f"it prints {told[0]}")
        return (f"{' '.join(words[1:])}, {env}: {problem}", outcome.text()) if problem else None

    def case(session):
        return repeat(session, few, many, lambda chance, seed: one(session, chance, seed))

    return case


case_messages = _make("pt2pt_soak", 8, 8, 400)
case_messages_of_threads = _make("threads_soak", 4, 6, 200)
case_accesses = _make("rma_soak", 8, 4, 100)
