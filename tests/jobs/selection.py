"""Settings that choose transports and protocols: each has its effect, and the report shows it.

Each case runs with FASTPATH_REPORT=json, reads from the report at which sizes the protocol changes, and sends messages
of those sizes and their neighbours. The data must be right, and the report must list what was disabled, and why.
"""

import errno
import json
import os
from harness.slices import sliced

# The jobs of this file have several ranks, which compute or spin.
NEEDS = {"processors": 2}

# Sizes in every run, besides those at which the protocol changes.
ALWAYS = [0, 1, 47, 48, 49, 100_000, 300_001, 1 << 20]
# Protocols whose data does not pass through the ring.
COPIES = {"rendezvous get", "cooperative"}


def _report(outcome):
    """Returns the report in the output of a job, or a problem."""
    lines = [line for line in outcome.err.splitlines() if line.strip()]
    # A size outside its bounds gives a warning, and a note in the report.
    warned = [line for line in lines if "is out of range" in line and not line.startswith("{")]
    # Learned costs, statistics of collective calls and each rank's thread level are printed at the end.
    at_end = ('"timed_messages"', '"shared_processors"', '"collective"', '"threads":')
    learnt = [line for line in lines if any(key in line for key in at_end)]
    lines = [line for line in lines if line not in warned and line not in learnt]
    if len(lines) != 1:
        raise AssertionError(f"{len(lines)} lines on standard error instead of the report: {outcome.err[:300]}")
    report = json.loads(lines[0])
    if len(warned) != len(report["notes"]):
        raise AssertionError(f"{len(warned)} warnings, {len(report['notes'])} notes: {outcome.err[:300]}")
    return report


def _class(report, peer="ranks on this node", memory="private memory"):
    return next(c for c in report["classes"] if c["peer"] == peer and c["memory"] == memory)


def _protocols(one):
    return {r["protocol"] for r in one["ranges"]}


def _border(one, protocol):
    """Largest size of a protocol; None if it is unlimited or absent."""
    return next((r["to"] for r in one["ranges"] if r["protocol"] == protocol), None)


def _reason(one, option):
    return next((r["reason"] for r in one["rejected"] if r["option"] == option), "")


def _run(session, env, ranks=2, words=()):
    """Returns the report of a job with these settings, after messages of all its sizes have arrived; or a problem."""
    env = {"FASTPATH_REPORT": "json", "FASTPATH_TUNING": "none", **env}
    program = [session.binary("selection"), *words]
    first = session.mpirun(ranks, program, env=env).finish()
    problem = first.problem(quiet=False)
    if problem:
        return None, problem
    report = _report(first)
    borders = {r["to"] for c in report["classes"] for r in c["ranges"]} - {None}
    sizes = {max(0, b + d) for b in borders for d in (-1, 0, 1)} | set(ALWAYS)
    second = session.mpirun(ranks, [*program, *map(str, sorted(sizes))], env=env).finish()
    return report, second.problem(quiet=False)


def _holds(session, env, check, **more):
    """Returns None, or what is wrong with the data or the report. `check` yields pairs of actual and expected
    values."""
    report, problem = _run(session, env, **more)
    if problem:
        return f"{env}: {problem}"
    wrong = [f"{is_!r} instead of {should!r}" for is_, should in check(report) if is_ != should]
    return f"{env}: the report has {'; '.join(wrong)}" if wrong else None


def _ways(one):
    """Path of one-sided operations to memory."""
    return {w["operations"]: w["way"] for w in one["one_sided"]}


def _all(problems):
    return next((problem for problem in problems if problem), None)


def case_nothing_is_set(session):
    def check(report):
        node = _class(report)
        yield _class(report, "itself", "any memory")["transports"], ["loopback"]
        yield [_border(node, p) for p in ("eager short", "eager", "eager multi-fragment")], [48, 16384, 65536]
        refused = "process_vm_readv" in _reason(node, "cooperative")
        yield refused or "used only after a measurement" in _reason(node, "cooperative"), True
        yield "MPI_Alloc_mem" in _reason(node, "rendezvous put"), True
        yield [r["from"] for r in node["ranges"][1:]], [r["to"] + 1 for r in node["ranges"][:-1]]
        yield report["notes"], []
        copied = {"put, get": "kernel", "atomics": "kernel"}
        asked = {"put, get, atomics": "messages"}
        yield _ways(node), asked if refused else copied
        yield _ways(_class(report, memory="memory from MPI_Alloc_mem")), {"put, get, atomics": "load-store"}
        yield _ways(_class(report, "itself", "any memory")), {"put, get, atomics": "load-store"}

    return _all(_holds(session, {}, check, ranks=n) for n in (2, 3))


def case_disable(session):
    def cma(report):
        yield _reason(_class(report), "cooperative"), "switched off by FASTPATH_DISABLE"
        yield COPIES & _protocols(_class(report)), set()
        yield _ways(_class(report)), {"put, get, atomics": "messages"}

    def direct(report):
        shared = _class(report, memory="memory from MPI_Alloc_mem")
        yield [_reason(shared, p) for p in (*COPIES, "rendezvous put")], 3 * ["switched off by FASTPATH_DISABLE"]
        yield COPIES & _protocols(shared), set()
        yield "load-store" in _ways(shared).values(), False

    def pipeline(report):
        node = _class(report)
        yield _reason(node, "pipelining"), "switched off by FASTPATH_DISABLE"
        yield "sender and receiver copy one after the other" in str(node["ranges"]) or bool(COPIES & _protocols(node)), True
        yield _border(node, "eager"), 32704

    def adapt(report):
        node = _class(report)
        yield _reason(node, "learning"), "switched off by FASTPATH_DISABLE"
        yield "process_vm_readv" in _reason(node, "cooperative") or "cooperative" in _protocols(node), True

    def everything(report):
        yield from cma(report)
        yield from direct(report)
        yield from pipeline(report)
        yield "sender and receiver copy one after the other" in str(_class(report)["ranges"]), True

    settings = [("cma", cma), ("direct", direct), ("pipeline", pipeline), ("adapt", adapt), ("cma,direct,pipeline", everything)]
    return _all(_holds(session, {"FASTPATH_DISABLE": value}, check) for value, check in settings)


def case_transports(session):
    def shm(report):
        yield _class(report, "itself")["transports"][0], "shm"
        yield _reason(_class(report), "cooperative"), "not listed in FASTPATH_TRANSPORTS"

    def both(report):
        yield _class(report, "itself", "any memory")["transports"], ["loopback"]
        yield _reason(_class(report), "cooperative"), "not listed in FASTPATH_TRANSPORTS"

    def alone(report):
        yield [c["peer"] for c in report["classes"]], ["itself"]

    return _all([
        _holds(session, {"FASTPATH_TRANSPORTS": "shm"}, shm),
        _holds(session, {"FASTPATH_TRANSPORTS": "shm,loopback"}, both),
        _holds(session, {"FASTPATH_TRANSPORTS": "loopback"}, alone, ranks=1),
        _refused(session, {"FASTPATH_TRANSPORTS": "loopback"}, "add shm"),
        _refused(session, {"FASTPATH_TRANSPORTS": "warp"}, "warp"),
    ])


def _refused(session, env, text):
    """An invalid setting ends the job at once, with a message."""
    outcome = session.mpirun(2, [session.binary("selection"), "8"], env=env).finish()
    if outcome.code in (0, None) or text not in outcome.err or outcome.left:
        return f"{env}: exit code {outcome.code}, and the message lacks {text!r}: {outcome.err[:300]!r}"
    return None


def case_eager_max(session):
    def most(size, note):
        def check(report):
            node = _class(report)
            unasked = [r["to"] for r in node["ranges"] if r["protocol"].startswith("eager")]
            yield max(unasked), size
            yield len(report["notes"]), int(note)
            yield "FASTPATH_EAGER_MAX" in str(report["notes"]), note

        return check

    settings = [("0", 48, True), ("1K", 1024, False), ("20000", 20000, False), ("1M", 65536, True)]
    problems = [_holds(session, {"FASTPATH_EAGER_MAX": v}, most(size, note)) for v, size, note in settings]
    return _all([*problems, _refused(session, {"FASTPATH_EAGER_MAX": "junk"}, "FASTPATH_EAGER_MAX=junk")])


def case_pipeline_chunk(session):
    def piece(size, note):
        def check(report):
            how = " ".join(r["how"] for r in _class(report)["ranges"])
            yield f"fragments of {size} B" in how, True
            yield "FASTPATH_PIPELINE_CHUNK" in str(report["notes"]), note

        return check

    off = {"FASTPATH_DISABLE": "cma"}
    settings = [("1", 256, True), ("1000", 1000, False), ("16K", 16384, False), ("1G", 32704, True)]
    problems = [_holds(session, {**off, "FASTPATH_PIPELINE_CHUNK": v}, piece(size, note)) for v, size, note in settings]
    return _all([*problems, _refused(session, {"FASTPATH_PIPELINE_CHUNK": "-3"}, "FASTPATH_PIPELINE_CHUNK=-3")])


def case_kernel_refuses(session):
    """As in a container, or under Yama: all messages arrive, no warning is printed, and the report has the reason."""
    for code in (errno.EPERM, errno.ENOSYS):
        for tuning in ("none", "auto"):
            def check(report):
                yield f"os error {code}" in _reason(_class(report), "cooperative"), True
                yield COPIES & _protocols(_class(report)), set()

            env = {"FASTPATH_TUNING": tuning, "XDG_CACHE_HOME": os.path.join(session.folder, "missing")}
            problem = _holds(session, env, check, words=[f"deny={code}"])
            quiet = session.mpirun(2, [session.binary("selection"), f"deny={code}", "100000", "1000000"]).finish()
            problem = problem or quiet.problem()
            if problem:
                return f"{errno.errorcode[code]}: {problem}"
    return None


def case_report_text(session):
    """The text matches the JSON and comes from rank 0 only; neither is printed by default."""
    program = [session.binary("selection"), "8"]
    outcome = session.mpirun(3, program, env={"FASTPATH_REPORT": "1"}).finish()
    problem = outcome.problem(quiet=False)
    lines = outcome.err.splitlines()
    if problem or not all(line.startswith("fastpath: ") for line in lines):
        return problem or f"a line is not ours: {outcome.err[:300]}"
    wanted = {"to itself": 1, "to ranks on this node, private memory (shm": 1, "eager short": 3, "transfer_byte_ns": 1}
    for text, times in wanted.items():
        if sum(text in line for line in lines) != times:
            return f"{text!r} is not there as often as it should: {outcome.err[:1000]}"
    off = session.mpirun(2, program, env={"FASTPATH_REPORT": "0"}).finish()
    return off.problem() or _refused(session, {"FASTPATH_REPORT": "xml"}, "json")


def case_tuning_file(session):
    """An invalid file gives one warning and the defaults; one made on this machine is used, and the report names it."""
    tool = os.path.join(session.prefix, "bin", "fastpath")
    program = [session.binary("selection"), "8", "40000", "300000"]
    folder = os.path.join(session.folder, "tuning")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "file")

    def write(text):
        with open(path, "wb") as file:
            file.write(text)

    def run(**env):
        return session.mpirun(2, program, env={"FASTPATH_TUNING": path, **env}).finish()

    if os.path.exists(path):
        os.remove(path)
    made = session.start([tool, "tune", "--allow-busy"], env={"FASTPATH_TUNING": path}).finish()
    if made.problem():
        return f"fastpath tune: {made.problem()}"
    with open(path, "rb") as file:
        good = file.read()
    outcome = run()
    if outcome.problem():
        return f"with its own file: {outcome.problem()}"
    source = _report(run(FASTPATH_REPORT="json"))["source"]
    if not source.startswith(f"from {path}"):
        return f"the source of the costs is reported as {source!r}"
    hostile = [b"", good[:-5], good[:len(good) // 2], good.replace(b"line_ns: ", b"line_ns: -"), b"\0" * 5000, b"x" * 100_000,
               good.replace(b"kernel: ", b"kernel: another-"), good + good, b"\xff\xfe" + good]
    for text in hostile:
        write(text)
        outcome = run()
        if outcome.problem(quiet=False) or outcome.err.count("\n") != 1 or "is not used" not in outcome.err:
            return f"with {text[:40]!r}...: {outcome.problem(quiet=False)}, {outcome.err[:300]!r}"
    os.remove(path)
    outcome = run()
    if outcome.problem(quiet=False) or "is not used" not in outcome.err:
        return f"with no file: {outcome.problem(quiet=False)}, {outcome.err[:300]!r}"
    return None


def case_info(session):
    """`fastpath info --protocols` prints the report of a job without starting one, and how ranks of other hosts
    would be reached."""
    tool = os.path.join(session.prefix, "bin", "fastpath")
    for env in ({}, {"FASTPATH_DISABLE": "cma"}, {"FASTPATH_EAGER_MAX": "1K", "FASTPATH_TRANSPORTS": "shm"}):
        env = {"FASTPATH_TUNING": "none", **env}
        alone = session.start([tool, "info", "--protocols", "--json"], env=env).finish()
        if alone.problem():
            return alone.problem()
        report, problem = _run(session, env)
        if problem:
            return problem
        told = json.loads(alone.out)
        # The tool is no job.
        if "mpiexec" not in report.pop("started") or "started" in told:
            return f"{env}: the launcher of the job is wrong", json.dumps(told)
        away = [one for one in told["classes"] if one["peer"] == "ranks of other hosts"]
        if len(away) != (env.get("FASTPATH_TRANSPORTS") != "shm"):
            return f"{env}: {len(away)} ways to ranks of other hosts"
        told["classes"] = [one for one in told["classes"] if one not in away]
        if told != report:
            return f"{env}: a job reports {report}, and the tool {alone.out}"
    return None


@sliced
def case_learnt(session):
    """`fastpath info --protocols --learn` prints what two ranks learn of each size from how many messages, in both
    forms. A job whose ranks share processors reports what it learned about copies."""
    tool = os.path.join(session.prefix, "bin", "fastpath")
    quiet = {"FASTPATH_TUNING": "none"}
    outcome = session.start([tool, "info", "--protocols", "--learn", "--json"], env=quiet).finish()
    if outcome.problem():
        return outcome.problem()
    _, *learnt = [json.loads(line) for line in outcome.out.splitlines()]
    of_sizes = {one["from_bytes"] for one in learnt}
    if of_sizes != {1 << bits for bits in range(12, 23)} or not all(one["timed_messages"] > 0 for one in learnt):
        return f"learnt of {sorted(of_sizes)}: {outcome.out[-500:]}"
    pairs = {(one["from_rank"], one["rank"]) for one in learnt}
    if pairs != {(0, 1), (1, 0)}:
        return f"learnt between {pairs}"
    off = session.start([tool, "info", "--protocols", "--learn"], env={**quiet, "FASTPATH_DISABLE": "adapt"}).finish()
    if off.code != 1 or "the ranks learned no costs" not in off.err:
        return f"where nothing is learnt: {off.code}, {off.err[:300]}"
    words = ["-n", "2", "--cpu-set", str(min(os.sched_getaffinity(0))), session.binary("selection")]
    crowded = session.start([os.path.join(session.prefix, "bin", "mpiexec"), *words, *["4000000"] * 20],
                            env={**quiet, "FASTPATH_REPORT": "json"}).finish()
    told = [json.loads(line)["shared_processors"] for line in crowded.err.splitlines() if '"shared_processors"' in line]
    if crowded.problem(quiet=False) or not any(one["messages"] >= 20 and one["ps_per_byte"] > 0 for one in told):
        return f"one processor: {crowded.problem(quiet=False)}, {crowded.err[-500:]}"
    return None


# Learned costs depend on message times.
case_learnt.needs = {"alone": True}
