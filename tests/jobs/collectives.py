"""Collective calls on several virtual hosts of this machine: algorithms that are named, and what the report says."""

# Programs of tests/c, and the ranks of each segment of the command: hosts in blocks, uneven, and dealt in turn.
PROGRAMS = ["coll_move", "coll_reduce", "coll_forms", "coll_hosts"]
PLACINGS = {
    "blocks": [("a", 2), ("b", 2)],
    "uneven": [("a", 3), ("b", 1), ("c", 1)],
    "dealt": [("a", 1), ("b", 1), ("a", 1), ("b", 1)],
}
CALLS = ["barrier", "bcast", "allgather", "reduce", "allreduce"]


def _run(session, placing, program, env, timeout=240):
    words = [session.mpiexec, "--timeout", str(timeout)]
    for number, (host, ranks) in enumerate(placing):
        words += [":"] if number else []
        words += ["--virtual-host", host, "-n", str(ranks), *program]
    env = {"FASTPATH_DEVICE": "no_such_9", **env}
    return session.start(words, env=env, timeout=timeout).finish()


def _make(name, placing):
    def case(session):
        named = ",".join(f"{call}:nodes" for call in CALLS)
        for env in ({"FASTPATH_COLL": named}, {}):
            for program in PROGRAMS if env else ["coll_hosts"]:
                outcome = _run(session, placing, [session.binary(program)], env)
                if problem := outcome.problem():
                    return f"{program}: {problem}", outcome.text()
        return None
    case.long = name == "uneven"
    return case


for _name, _placing in PLACINGS.items():
    globals()[f"case_by_hosts_{_name}"] = _make(_name, _placing)


def case_report_names_algorithms(session):
    """With a name and without one; what has no such algorithm takes the usual one."""
    for named, expected in (("allreduce:nodes", "allreduce of 4 ranks by nodes"),
                            ("allreduce:ring,bcast:binomial", "bcast of 4 ranks by binomial")):
        env = {"FASTPATH_REPORT": "1", "FASTPATH_COLL": named}
        outcome = _run(session, PLACINGS["blocks"], [session.binary("coll_reduce")], env)
        if problem := outcome.problem(quiet=False):
            return problem, outcome.text()
        if expected not in outcome.err:
            return f"the report does not say {expected!r}", outcome.text()
    return None


def case_names_that_are_none(session):
    outcome = session.mpirun(2, [session.binary("coll_reduce")], env={"FASTPATH_COLL": "allreduce:tree"}).finish()
    if problem := outcome.problem(quiet=False):
        return problem, outcome.text()
    return None if 'allreduce has no algorithm "tree"' in outcome.err else ("no warning", outcome.text())


def case_names_between_two_ranks(session):
    """A short call between two ranks takes the immediate path on one of them or on both, whatever is named."""
    names = {"barrier": ["flat", "dissemination"], "bcast": ["binomial", "scatter-allgather"],
             "allgather": ["flat", "doubling", "bruck"], "reduce": ["binomial", "halving"],
             "allreduce": ["flat", "halving", "ring"]}
    for call, algorithms in names.items():
        for algorithm in algorithms:
            for program in ("coll_outstanding", "coll_reduce"):
                env = {"FASTPATH_COLL": f"{call}:{algorithm}"}
                outcome = session.mpirun(2, [session.binary(program)], env=env).finish()
                if problem := outcome.problem():
                    return f"{program}, {env}: {problem}", outcome.text()
    return None


def case_names_that_differ(session):
    """Ranks that would choose differently do not wait for each other: the job ends with the reason."""
    binary = session.binary("coll_reduce")
    words = [session.mpiexec, "--timeout", "60", "-n", "1", "-env", "FASTPATH_COLL", "allreduce:ring", binary,
             ":", "-n", "2", binary]
    outcome = session.start(words, timeout=60).finish()
    if outcome.code in (None, 0) or "different values of FASTPATH_COLL" not in outcome.err:
        return "no message that the names differ", outcome.text()
    return None
