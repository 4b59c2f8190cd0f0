"""Collective calls on several virtual hosts of this machine: named algorithms, and the report."""

import json
import os
import re
from harness.slices import sliced

# The jobs of this file have several ranks, which compute or spin.
NEEDS = {"processors": 2}

# Programs of tests/c, and the ranks of each command segment: hosts in blocks, uneven, and round robin.
PROGRAMS = ["coll_move", "coll_reduce", "coll_forms", "coll_hosts"]
PLACINGS = {
    "blocks": [("a", 2), ("b", 2)],
    "uneven": [("a", 3), ("b", 1), ("c", 1)],
    "dealt": [("a", 1), ("b", 1), ("a", 1), ("b", 1)],
}
CALLS = ["barrier", "bcast", "allgather", "allgatherv", "reduce", "allreduce"]


def _run(session, placing, program, env, timeout=240):
    words = [session.mpiexec, "--timeout", str(timeout)]
    for number, (host, ranks) in enumerate(placing):
        words += [":"] if number else []
        words += ["--virtual-host", host, "-n", str(ranks), *program]
    env = {"FASTPATH_DEVICE": "no_such_9", **env}
    return session.start(words, env=env, timeout=timeout).finish()


def _algorithms():
    """Each call with its algorithms, from docs/scale.md; a test in asked.rs compares that with the library."""
    page = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "scale.md")
    with open(page, encoding="utf-8") as file:
        rows = re.findall(r"^\| `(\w+)` \| ((?:`[a-z-]+`(?:, )?)+) \|$", file.read(), re.MULTILINE)
    return {call: re.findall(r"[a-z-]+", names) for call, names in rows}


def _told(text):
    """Counts of a report: (call, between groups, ranks, algorithm) with the number of calls by size."""
    told = {}
    line = r"^fastpath: (\w+)( between groups)? on (\d+) ranks, algorithm ([a-z-]+): (.*)$"
    for call, between, ranks, name, sizes in re.findall(line, text, re.MULTILINE):
        sizes = {int(b): int(n) for n, b in re.findall(r"(\d+) calls? from (\d+) B", sizes)}
        told[call, bool(between), int(ranks), name] = sizes
    return told


def _told_as_json(text):
    """Counts of a report in JSON."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith('{"rank":')]
    return {
        (line["collective"], line["between_groups"], line["ranks"], line["algorithm"]):
            {size["from_bytes"]: size["calls"] for size in line["sizes"]}
        for line in lines if "collective" in line
    }


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


def case_costs_leave_the_floating_point_environment(session):
    """The choice of an algorithm between hosts, and a report, with every exception trapped."""
    for env, quiet in (({}, True), ({"FASTPATH_REPORT": "1"}, False)):
        outcome = _run(session, PLACINGS["blocks"], [session.binary("float_environment"), "trap"], env)
        if problem := outcome.problem(quiet=quiet):
            return problem, outcome.text()
    return None


def case_report_names_algorithms(session):
    """With a named algorithm and without. A call without that algorithm uses its default."""
    for named, expected in (("allreduce:nodes", "allreduce on 4 ranks, algorithm nodes"),
                            ("allreduce:ring,bcast:binomial", "bcast on 4 ranks, algorithm binomial")):
        env = {"FASTPATH_REPORT": "1", "FASTPATH_COLL": named}
        outcome = _run(session, PLACINGS["blocks"], [session.binary("coll_reduce")], env)
        if problem := outcome.problem(quiet=False):
            return problem, outcome.text()
        if expected not in outcome.err:
            return f"the report does not say {expected!r}", outcome.text()
    return None


def _size(call, ranks):
    """For the calls of coll_told.c: the smallest size that is reported as the call's size."""
    of_all = call.startswith(("allgather", "reduce_scatter"))
    return 0 if call == "barrier" else 16 * ranks if of_all else 16


def case_report_names_every_call(session):
    """Each call in each form. On one host, two ranks would take the immediate path for such short data."""
    algorithms, binary = _algorithms(), session.binary("coll_told")
    if len(algorithms) != 22:
        return "docs/scale.md does not have 22 calls", str(algorithms)
    for form, read in (("1", _told), ("json", _told_as_json)):
        for ranks in (2, 4):
            outcome = session.mpirun(ranks, [binary], env={"FASTPATH_REPORT": form}).finish()
            if problem := outcome.problem(quiet=False):
                return problem, outcome.text()
            told = read(outcome.err)
            for call, names in algorithms.items():
                size = _size(call, ranks)
                found = sum(told.get((call, False, ranks, name), {}).get(size, 0) for name in names)
                if found < 30:
                    return f"FASTPATH_REPORT={form}, {ranks} ranks: {found} calls of {call} from {size} B", outcome.text()
                groups = [sizes for key, sizes in told.items() if key[:3] == (call, True, ranks)]
                has_groups = "scan" not in call and "neighbor" not in call
                counted = sum(number for sizes in groups for size, number in sizes.items() if size or call == "barrier")
                if has_groups != bool(groups) or has_groups and counted < 30:
                    return f"FASTPATH_REPORT={form}, {ranks} ranks, {call} between groups: {groups}", outcome.text()
    return None


LINES = ("barrier:lines,bcast:lines,allreduce:lines,allgather:lines,reduce:shared,alltoall:shared,gather:lines,"
         "scatter:shared,scan:lines,exscan:lines,reduce_scatter:shared,reduce_scatter_block:shared")
# Two sockets with two L3 caches of two processors each.
MACHINE = "".join(f"socket:{cpus[0] // 4} numa:{cpus[0] // 4} l3:{cpus[0] // 2} cpus:{cpus[0]}-{cpus[1]}\n"
                  for cpus in ((0, 1), (2, 3), (4, 5), (6, 7)))


def case_lines_by_topology(session):
    """Shared lines on a machine of two sockets and four L3 caches: even groups of ranks, and uneven ones."""
    topology = os.path.join(session.folder, "topology")
    with open(topology, "w", encoding="utf-8") as file:
        file.write("processors:8\n" + MACHINE)
    env = {"FASTPATH_COLL": LINES, "FASTPATH_TOPOLOGY": topology}
    for ranks in (8, 7):
        for program in (["coll_lines", "6"], ["coll_move"], ["coll_reduce"]):
            words = [session.binary(program[0]), *program[1:]]
            outcome = session.mpirun(ranks, words, env=env, timeout=240).finish()
            if problem := outcome.problem():
                return f"{program[0]}, {ranks} ranks: {problem}", outcome.text()
    outcome = session.mpirun(8, [session.binary("coll_move")], env={"FASTPATH_REPORT": "1", **env}).finish()
    for call, name in (("barrier", "lines"), ("bcast", "lines"), ("allgather", "lines"), ("gather", "lines"), ("scatter", "shared")):
        if f"{call} on 8 ranks, algorithm {name}" not in outcome.err:
            return f"{call} does not use lines", outcome.text()
    return None


def _make_lines_in(form):
    def case(session):
        """The report counts the broadcasts, which the program makes in one form only."""
        env = {"FASTPATH_REPORT": "1", "FASTPATH_COLL": LINES}
        outcome = session.mpirun(4, [session.binary(f"coll_lines_{form}")], env=env).finish()
        if problem := outcome.problem(quiet=False):
            return problem, outcome.text()
        if "bcast on 4 ranks, algorithm lines" not in outcome.err:
            return f"{form} broadcasts do not use lines", outcome.text()
        return None
    return case


case_lines_in_nonblocking_calls = _make_lines_in("nonblocking")
case_lines_in_persistent_calls = _make_lines_in("persistent")


def case_persistent_calls_through_lines_allocate_nothing(session):
    """The program checks that a restarted call allocates no memory."""
    outcome = session.mpirun(3, [session.binary("coll_persistent"), "lines"], env={"FASTPATH_COLL": LINES}).finish()
    return outcome.problem(), outcome.text()


def _make_many_ranks(ranks, words):
    def case(session):
        """Many ranks on the processors of this machine, with checked contents."""
        program, *args = words
        job = session.mpirun(ranks, [session.binary(program), *args], env={"FASTPATH_COLL": LINES}, timeout=600)
        outcome = job.finish()
        return outcome.problem(), outcome.text()
    return sliced(case)


# Blocking calls, nonblocking calls, persistent calls, and each call in its three forms.
MANY_RANKS = {"": ["coll_lines", "1"], "_nonblocking": ["coll_lines_nonblocking", "1"],
              "_persistent": ["coll_lines_persistent", "1"], "_forms": ["coll_forms", "5"]}
for _ranks in (128, 192):
    for _name, _words in MANY_RANKS.items():
        globals()[f"case_lines_of_many_ranks{_name}_{_ranks}"] = _make_many_ranks(_ranks, _words)


@sliced
def case_memory_of_128_ranks(session):
    """The program checks the shared memory of each rank."""
    outcome = session.mpirun(128, [session.binary("coll_lines_memory")], env={"FASTPATH_COLL": LINES}, timeout=300).finish()
    return outcome.problem(), outcome.text()


@sliced
def case_names_of_every_call(session):
    """Each algorithm runs if it is named, and results are right."""
    algorithms = {call: names for call, names in _algorithms().items() if len(names) > 1}
    # For several hosts, for long calls, for calls in place, or only for blocking calls.
    elsewhere = {"nodes", "shared", "copied", "pairs", "lines"}
    for turn in range(max(map(len, algorithms.values()))):
        chosen = {call: names[turn % len(names)] for call, names in algorithms.items()}
        named = ",".join(f"{call}:{name}" for call, name in chosen.items())
        env = {"FASTPATH_COLL": named}
        for ranks in (2, 3):
            outcome = session.mpirun(ranks, [session.binary("coll_forms")], env=env, timeout=240).finish()
            if problem := outcome.problem():
                return f"coll_forms, {ranks} ranks, {named}: {problem}", outcome.text()
        outcome = session.mpirun(4, [session.binary("coll_told")], env={"FASTPATH_REPORT": "1", **env}).finish()
        if problem := outcome.problem(quiet=False):
            return f"coll_told, {named}: {problem}", outcome.text()
        told = _told(outcome.err)
        for call, name in chosen.items():
            if name not in elsewhere and told.get((call, False, 4, name), {}).get(_size(call, 4), 0) < 30:
                return f"{call} did not go by {name}", outcome.text()
    return None


def case_names_that_are_none(session):
    said = {"allreduce:tree": 'allreduce has no algorithm "tree": use one of flat, ',
            "gatherv:binomial": 'gatherv has no algorithm "binomial": use linear'}
    for named, expected in said.items():
        outcome = session.mpirun(2, [session.binary("coll_reduce")], env={"FASTPATH_COLL": named}).finish()
        if problem := outcome.problem(quiet=False):
            return problem, outcome.text()
        if expected not in outcome.err:
            return f"no warning {expected!r}", outcome.text()
    return None


def case_names_between_two_ranks(session):
    """A short call between two ranks takes the immediate path on one of them or on both, even if an algorithm is
    named."""
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
    """Ranks that would choose differently do not hang: the job ends with the reason."""
    binary = session.binary("coll_reduce")
    words = [session.mpiexec, "--timeout", "60", "-n", "1", "-env", "FASTPATH_COLL", "allreduce:ring", binary,
             ":", "-n", "2", binary]
    outcome = session.start(words, timeout=60).finish()
    if outcome.code in (None, 0) or "different values of FASTPATH_COLL" not in outcome.err:
        return "no message that the names differ", outcome.text()
    return None


def _make_lengths(words, placing, texts):
    def case(session):
        outcome = _run(session, placing, [session.binary("coll_lengths"), *words], {}, 60)
        problem = outcome.problem(16 if texts else 0, quiet=not texts)
        missing = [text for text in texts if text not in outcome.err]
        return problem or (f"the report lacks {missing}" if missing else None), outcome.text()

    case.needs = {"processors": 0}
    return case


# Ranks with different lengths choose different algorithms: ranks wait in a cycle, or one has completed the call. A rank
# that is late, or computes during the call, ends nothing.
_CYCLE, _FINISHED = "itself waits in this call for this rank, directly or through other ranks", "has finished this call without this message"
LENGTHS = {
    "cycle": ("allgather 0 32000 28000", "the call", _CYCLE),
    "finished_reduce": ("reduce 3 1000 300000", "the call", _FINISHED),
    "finished_allreduce": ("allreduce 1 900000 1000", "the call", _FINISHED),
    "multiple": ("reduce 3 1000 300000 multiple", "the call", _FINISHED),
    "late": ("allgather 3 1000 1000 late", None, None),
    "nonblocking": ("iallgather 0 32000 28000", "MPI_Iallgather", _CYCLE),
    "nonblocking_finished": ("iallreduce 1 8 500000", "MPI_Iallreduce", _FINISHED),
    "nonblocking_waitany": ("iallgather 0 32000 28000 any", "MPI_Iallgather", _CYCLE),
    "nonblocking_barrier": ("iallgather 0 32000 28000 barrier", "MPI_Iallgather", _CYCLE),
    "nonblocking_multiple": ("iallgather 0 32000 28000 multiple", "MPI_Iallgather", _CYCLE),
    "nonblocking_computes": ("iallreduce 3 1000 1000 computes", None, None),
    "nonblocking_tests": ("iallgather 0 32000 28000 tests", "MPI_Iallgather", _CYCLE),
    "nonblocking_finished_tests": ("iallreduce 1 8 500000 tests", "MPI_Iallreduce", _FINISHED),
    "nonblocking_receives": ("iallgather 0 32000 28000 receives", "MPI_Iallgather", _CYCLE),
    "persistent_tests": ("reduce_init 3 1000 300000 tests", "MPI_Reduce_init", _FINISHED),
    "tests_late": ("iallreduce 3 1000 1000 computes-tests", None, None),
    "persistent": ("allgather_init 0 32000 28000", "MPI_Allgather_init", _CYCLE),
    "persistent_finished": ("reduce_init 3 1000 300000", "MPI_Reduce_init", _FINISHED),
    "persistent_computes": ("reduce_init 3 1000 1000 computes", None, None),
}
for _name, (_words, _call, _text) in LENGTHS.items():
    _texts = [f"{_call} can never complete: this rank waits to ", _text, "FASTPATH_CHECK=1"] if _text else []
    _case = _make_lengths(_words.split(), PLACINGS["blocks"], _texts)
    _case.sliced = _name not in ("cycle", "finished_reduce", "late", "nonblocking_tests", "persistent")
    globals()[f"case_lengths_{_name}"] = _case


def _make_lengths_here(words, is_stuck):
    """Different lengths on one host, where the launcher detects ranks that wait for each other."""

    def case(session):
        outcome = session.mpirun(4, [session.binary("coll_lengths"), *words], timeout=60).finish()
        problem = outcome.problem(16 if is_stuck else 0, quiet=not is_stuck)
        missing = is_stuck and [text for text in ("can never complete", "deadlock: ") if text not in outcome.err]
        return problem or (f"the report lacks {missing}" if missing else None), outcome.text()

    case.needs = {"processors": 0}
    return case


case_lengths_here = _make_lengths_here(["allreduce", "1", "8", "500000"], True)
case_lengths_here_nonblocking = _make_lengths_here(["iallreduce", "1", "8", "500000"], True)
case_lengths_here_iallgather = sliced(_make_lengths_here(["iallgather", "1", "8", "100000"], True))
case_lengths_here_late = sliced(_make_lengths_here(["allgather", "3", "1000", "1000", "late"], False))
