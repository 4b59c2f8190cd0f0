"""Windows in messages: fatal errors name the window and a remedy, waits name the peer, the report names the paths."""

import itertools
import json
import os
import re
import tempfile

from harness import program
from harness.slices import sliced

# Argument of the program, exit code of the job, and expected texts.
ENDS = {
    "range": (48, ["MPI_Put", "rank 1 of 2", "MPI_ERR_RMA_RANGE", "4 bytes", "at byte 64", "rank 0 has 64 bytes", "ledger", "to do:"]),
    "epoch": (50, ["MPI_Put", "MPI_ERR_RMA_SYNC", "rank 0", "window ledger", "call MPI_Win_lock"]),
    "free": (50, ["MPI_Win_free", "MPI_ERR_RMA_SYNC", "holds a lock", "locked: 0", "call MPI_Win_unlock first"]),
    "dies": (9, ["rank 0", "exited with code 9", "while it held a lock of rank 0's window memory (window ledger)"]),
    # A rank finalizes with a lock that another waits for.
    "ends": (50, ["MPI_Finalize", "rank 0", "MPI_ERR_RMA_SYNC", "holds a lock", "locked: 0", "window ledger, made by MPI_Win_allocate",
                  "call MPI_Win_unlock first"]),
    "ends_started": (50, ["MPI_Finalize", "rank 0", "MPI_ERR_RMA_SYNC", "started: 0, 1", "window ledger", "call MPI_Win_complete first"]),
    "ends_entered": (0, ["rank 0: MPI_Finalize is called while an epoch by MPI_Win_lock_all is open, window ledger"]),
}
# Time limit of jobs that hang, in seconds: a verdict needs waits of a second, and a busy machine starts ranks late.
WAIT_S = 6
# Endless waits, and the expected texts.
HANGS = {
    "held": ["the rank holds a lock of rank 0's window memory (window ledger)", "MPI_Win_lock, peer 0, window ledger", "deadlock: rank 0 waits for rank 1 (MPI_Recv",
             "which waits for rank 0 (MPI_Win_lock"],
    "other": ["rank 1 (process", "MPI_Win_lock, peer 1, window ledger, for a lock on the peer's memory that rank 0 holds",
              "deadlock: rank 0 waits for rank 1 (MPI_Recv", "which waits for rank 0 (MPI_Win_lock"],
    "all": ["MPI_Win_lock_all, peer 1, window ledger, for a lock on the peer's memory that rank 0 holds",
            "deadlock: rank 0 waits for rank 1 (MPI_Recv", "which waits for rank 0 (MPI_Win_lock_all"],
    "entered": ["MPI_Win_lock, window ledger, until rank 0 ends its MPI_Win_lock_all epoch",
                "deadlock: rank 0 waits for rank 1 (MPI_Recv", "which waits for rank 0 (MPI_Win_lock"],
    "post": ["MPI_Win_start, peer 0", "which waits for rank 0 (MPI_Win_start"],
}
# Disabled features, and the resulting paths to memory that MPI allocates and to other memory. Without "direct" the lock
# words are not mapped either.
WAYS = {"": ("load-store", "kernel"), "direct": ("kernel", "kernel"), "cma": ("load-store", "messages"), "cma,direct": ("messages", "messages")}


def _judge(outcome, code, texts):
    problem = outcome.problem(code, quiet=False)
    missing = [text for text in texts if text not in outcome.err]
    return problem or (f"the report lacks {missing}: {outcome.err}" if missing else None)


def _make(how, code, texts, timeout):
    def case(session):
        return _judge(session.mpirun(2, [session.binary("rma_wrong"), how], timeout=timeout).finish(), code, texts)

    case.needs = {"processors": int(how not in HANGS)}
    return case


for _how, (_code, _texts) in ENDS.items():
    globals()[f"case_{_how}"] = _make(_how, _code, _texts, 60)
for _how, _texts in HANGS.items():
    globals()[f"case_{_how}"] = _make(_how, 124, _texts, WAIT_S)


def case_left(session):
    """MPI_Finalize reports open epochs that no rank waits for, with window and targets. With FASTPATH_CHECK it
    reports all windows that were not freed. The program succeeds."""
    every = "MPI_Finalize is called while an epoch by MPI_Win_lock_all is open, window ledger, made by MPI_Win_allocate. "
    post = "MPI_Finalize is called while an epoch by MPI_Win_post is open (posted for: 0, 1), window ledger, made by MPI_Win_allocate."
    ledger = "MPI_Win_free was never called for the window (ledger, made by MPI_Win_allocate)"
    other = "MPI_Win_free was never called for the window (made by MPI_Win_create)"
    both = [(0, ledger), (0, other), (1, ledger), (1, other)]
    # Reports without FASTPATH_CHECK, and reports with it.
    for how, always, checked in (
        ("left-all", [(0, every), (1, every)], [(0, every), (1, every), (0, other), (1, other)]),
        ("left-post", [(0, post), (1, post)], [(0, post), (1, post), (0, other), (1, other)]),
        ("left-fence", [], both),
        ("left", [], both),
    ):
        for env, wanted in ({}, always), ({"FASTPATH_CHECK": "1"}, checked):
            outcome = session.mpirun(2, [session.binary("rma_wrong"), how], env=env).finish()
            problem = outcome.problem(quiet=False)
            if problem:
                return f"{how}: {problem}", outcome.text()
            lines = [line for line in outcome.err.splitlines() if line.startswith("fastpath: rank ")]
            missing = [text for rank, text in wanted if not any(line.startswith(f"fastpath: rank {rank}: {text}") for line in lines)]
            if missing or len(lines) != len(wanted):
                return f"{how}, {env}: {len(lines)} lines, without {missing}", outcome.text()
    return None


def case_queue(session):
    """A rank that waits for a lock behind another one waits for that rank too, which progresses: no deadlock is
    reported."""
    outcome = session.mpirun(3, [session.binary("rma_wrong"), "queue"], timeout=WAIT_S).finish()
    problem = _judge(outcome, 124, ["waits in MPI_Win_lock, peer 0, window ledger, for a lock on the peer's memory, "])
    return problem or ("a deadlock is named" if re.search("deadlock(:| of )", outcome.err) else None)


def case_trace(session):
    """A trace shows transfers to and from windows, and the locks taken."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        outcome = session.mpirun(2, [session.binary("rma_wrong"), "counted"], env={"FASTPATH_TRACE": path}).finish()
        problem = outcome.problem(quiet=False)
        if problem:
            return problem, outcome.text()
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    for rank in range(2):
        points = [(event["name"], event.get("args", {})) for event in events if event["pid"] == rank and event.get("ph") == "i"]
        found = {(name, *(args.get(field) for field in ("window", "peer", "bytes"))) for name, args in points}
        ledger, other = "ledger", "made by MPI_Win_create"
        for wanted in (("lock", ledger, 1 - rank, None), ("put", ledger, 1 - rank, 4), ("epoch begins", other, None, None),
                       ("flush", ledger, 1 - rank, None), ("unlock", ledger, 1 - rank, None),
                       ("epoch begins", ledger, None, None), ("flush all", ledger, None, None),
                       ("accumulate", ledger, 1 - rank, 4), ("get", ledger, 1 - rank, 4), ("epoch ends", ledger, None, None)):
            if wanted not in found:
                return f"the trace of rank {rank} lacks {wanted}", str(sorted(map(str, found)))
        handles = {(args["window"], args["handle"]) for _, args in points if "window" in args}
        if len(handles) != 2 or len({handle for _, handle in handles}) != 2:
            return f"the windows of rank {rank} have no handles of their own: {handles}"
    return None


def case_counted(session):
    """The report has the counters of each window; with FASTPATH_CHECK they include every put and get."""
    for form, check in itertools.product(("json", "1"), (False, True)):
        env = {"FASTPATH_REPORT": form, "FASTPATH_CHECK": str(int(check))}
        outcome = session.mpirun(2, [session.binary("rma_wrong"), "counted"], env=env).finish()
        problem = outcome.problem(quiet=False)
        if problem:
            return problem, outcome.text()
        for rank in range(2):
            if form == "json":
                lines = [json.loads(line) for line in outcome.err.splitlines() if '"window"' in line]
                found = [(line["counts"], line["uncounted_to"]) for line in lines
                         if (line["rank"], line["window"]) == (rank, "ledger")]
                moved = [2, 68, 1, 4] if check else [1, 64, 0, 0]
                wanted = [({**dict(zip(("puts", "bytes_put", "gets", "bytes_got"), moved)), "accumulates": 1, "atomics": 1,
                            "locks": 1, "waits_for_locks": 0, "flushes": 2, "epochs": 2}, 0 if check else 48)]
            else:
                found = [line for line in outcome.err.splitlines() if f"rank {rank}: window (ledger): counted " in line]
                moved = "2 puts, 68 bytes put, 1 get, 4 bytes got" if check else "1 put, 64 bytes put"
                rest = "" if check else " (not counted: puts and gets of up to 48 B by load and store)"
                wanted = [f"fastpath: rank {rank}: window (ledger): counted {moved}, 1 accumulate, 1 atomic, 1 lock, "
                          f"2 flushes, 2 epochs{rest}"]
            if found != wanted:
                return f"rank {rank} has counted {found}", outcome.text()
    return None


def case_ways(session):
    """The report has the path to each rank of a window."""
    for off, (allocated, other) in WAYS.items():
        env = {"FASTPATH_REPORT": "json", "FASTPATH_DISABLE": off}
        outcome = session.mpirun(2, [session.binary("rma_wrong"), "right"], env=env).finish()
        problem = outcome.problem(quiet=False)
        if problem:
            return problem, outcome.text()
        lines = [json.loads(line) for line in outcome.err.splitlines() if '"window"' in line]
        found = {(line["rank"], line["window"]): line["ways"] for line in lines}
        for rank in range(2):
            for window, way in (("ledger", allocated), ("made by MPI_Win_create", other)):
                expected = [{"way": way, "ranks": [1 - rank], "atomics_need_owner": "direct" in off}]
                if found.get((rank, window)) != expected:
                    return f"without {off!r}, rank {rank} reports of the window {window}: {found.get((rank, window))}", outcome.text()
    return None


def case_remedy(session):
    """If operations depend on a target's progress, the report states it with the setting that provides progress;
    otherwise it does not."""
    remedy = "inside its MPI calls or, with FASTPATH_PROGRESS=thread, in its progress thread"
    atomics = "locks, atomics and accumulates"
    for env, said in (({}, []), ({"FASTPATH_DISABLE": "direct"}, [remedy, "the target performs " + atomics]), ({"FASTPATH_DISABLE": "cma,direct"}, [remedy, atomics]),
                      ({"FASTPATH_TRANSPORTS": "tcp"}, [remedy, atomics])):
        outcome = session.mpirun(2, [session.binary("rma_wrong"), "right"], env={"FASTPATH_REPORT": "1", **env}).finish()
        problem = outcome.problem(quiet=False)
        if problem:
            return problem, outcome.text()
        lines = [line for line in outcome.err.splitlines() if re.search(r"window \(.*\): reached rank \d by ", line)]
        wrong = [line for line in lines if not all(word in line for word in said) or (not said and "FASTPATH_PROGRESS" in line)]
        if len(lines) != 4 or wrong:
            return f"{env}: {len(lines)} windows, not all with the line {said}", outcome.text()
    return None


@sliced
def case_computing(session):
    """With a progress thread a computing target delays no operation, over any path."""
    over = [{"FASTPATH_TRANSPORTS": "tcp"}, *({"FASTPATH_DISABLE": off} for off in WAYS)]
    for env in over:
        outcome = session.mpirun(3, [session.binary("rma_passive")], env={"FASTPATH_PROGRESS": "thread", **env}).finish()
        if problem := outcome.problem():
            return f"{env}: {problem}", outcome.text()
    return None


def case_words_apart(session):
    """All memory of a shared window is mapped and belongs to rank 0, and its lock words are reached by messages: an
    atomic on a third rank's part is made under that rank's lock."""
    outcome = session.mpirun(3, [session.binary("rma_random")], env={"FASTPATH_TRANSPORTS": "tcp"}).finish()
    return outcome.problem(), outcome.text()


def case_example(session):
    """The example counts correctly on any number of ranks, and prints so."""
    source = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "examples", "table.c")
    binary = os.path.join(session.build, "table")
    complaint = program.build(binary, [session.mpicc, *program.FLAGS, "-o", binary, source], [source])
    if complaint:
        return f"it does not compile: {complaint}"
    for ranks in (1, 2, 3, 4, 8):
        outcome = session.mpirun(ranks, [binary, "5000"]).finish()
        if outcome.problem() or "the table is right" not in outcome.out:
            return f"{ranks} ranks: {outcome.problem()}", outcome.text()
    return None


def case_hosts(session):
    """Counters of a rank that others reach by messages only, while a rank of its host does not; and read-only
    memory."""
    for name in ("rma_counters", "rma_read_only"):
        program = [session.binary(name)]
        words = [session.mpiexec, "--timeout", "60", "--virtual-host", "a", "-n", "2", *program, ":",
                 "--virtual-host", "b", "-n", "2", *program]
        outcome = session.start(words, env={"FASTPATH_TRANSPORTS": "loopback,shm,cma,tcp"}).finish()
        problem = outcome.problem()
        if problem:
            return f"{name}: {problem}", outcome.text()
    return None


case_queue.needs = {"processors": 0}
