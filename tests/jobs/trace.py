"""FASTPATH_TRACE: one file of all ranks that tracers can open, also of a job that was killed; bad files are refused."""

import json
import os
import tempfile


def _trace(session, words, ranks=2, code=0, env=None, launcher=True):
    """Runs the program with a trace: (problem and text, or None; the file's events)."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        env = {"FASTPATH_TRACE": path, **(env or {})}
        words = [session.binary("traced"), *words]
        start = session.mpirun(ranks, words, env=env) if launcher else session.start(words, env=env)
        outcome = start.finish()
        problem = outcome.problem(code, quiet=False)
        if problem:
            return (problem, outcome.text()), []
        if "trace of " not in outcome.err or path not in outcome.err:
            return ("the file is not named", outcome.text()), []
        with open(path, encoding="utf-8") as file:
            return None, json.load(file)["traceEvents"]


def _names(events, rank):
    return {event["name"] for event in events if event["pid"] == rank and "name" in event}


def _open_calls(events, rank):
    """Names of the calls that a rank has entered and not left."""
    calls = []
    for event in events:
        if event["pid"] == rank and event["ph"] == "B":
            calls.append(event["name"])
        elif event["pid"] == rank and event["ph"] == "E":
            calls.pop()
    return [name for name in calls if name.startswith("MPI_")]


def _lacks(events, rank, names):
    missing = set(names) - _names(events, rank)
    return f"rank {rank} has no point {sorted(missing)}" if missing else None


def case_ranks(session):
    problem, events = _trace(session, [])
    if problem:
        return problem
    for rank in range(2):
        wanted = ["MPI_Send", "MPI_Recv", "MPI_Barrier", "MPI_Finalize", "post: short", "post", "post: eager",
                  "post: announcement", "poll: arrival", "poll: progress", "wait"]
        lacking = _lacks(events, rank, wanted)
        if lacking:
            return lacking, json.dumps(events[:200])
        if _open_calls(events, rank):
            return f"rank {rank} has not returned from {_open_calls(events, rank)}", ""
        times = [event["ts"] for event in events if event["pid"] == rank and "ts" in event]
        if times != sorted(times) or times[0] < 0:
            return f"rank {rank}: the points are not in the order of time", str(times[:100])
    short = [event for event in events if event.get("name") == "post: short" and event["pid"] == 0]
    if short[0]["args"] != {"peer": 1, "tag": 5, "bytes": 8}:
        return "the first short message is another one", str(short[0])
    return None


def case_threads(session):
    problem, events = _trace(session, ["multiple"])
    return problem or _lacks(events, 0, ["MPI_Send", "MPI_Recv", "post"])


def case_killed(session):
    problem, events = _trace(session, ["kill"], code=137)
    if problem:
        return problem
    waits = _open_calls(events, 0)
    return None if waits == ["MPI_Recv"] else (f"rank 0 was in {waits}, not in MPI_Recv", "")


def case_ring_keeps_the_last(session):
    problem, events = _trace(session, [], env={"FASTPATH_TRACE_EVENTS": "16"})
    if problem:
        return problem
    counted = [event for event in events if event["pid"] == 0 and event["ph"] != "M"]
    last = "MPI_Finalize" in _names(events, 0)
    return None if len(counted) <= 16 and last else (f"{len(counted)} points are kept", json.dumps(counted))


def case_without_launcher(session):
    problem, events = _trace(session, [], launcher=False)
    return problem or _lacks(events, 0, ["MPI_Barrier", "MPI_Finalize"])


def case_file_that_cannot_be_written(session):
    env = {"FASTPATH_TRACE": "/nowhere/trace.json"}
    outcome = session.mpirun(2, [session.binary("traced")], env=env).finish()
    if outcome.code != 2 or "FASTPATH_TRACE=/nowhere/trace.json" not in outcome.err:
        return "the file was not refused", outcome.text()
    return None
