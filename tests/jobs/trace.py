"""FASTPATH_TRACE: one file of all ranks that trace viewers can open, also of a killed job; invalid files are
rejected."""

import json
import os
import subprocess
import sys
import tempfile

from harness import packages

# Prints the regions that each rank enters, as JSON.
OTF2_READER = """
import json, sys, otf2
entered = {}
with otf2.reader.open(sys.argv[1]) as trace:
    for location, event in trace.events:
        if isinstance(event, otf2.events.Enter):
            values = {key.name: value for key, value in (event.attributes or {}).items()}
            entered.setdefault(location.group.name, []).append([event.region.name, values])
print(json.dumps(entered))
"""


def _trace(session, words, ranks=2, code=0, env=None, launcher=True):
    """Runs the program with a trace. Returns (problem and text, or None; the file's events)."""
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
            events = json.load(file)["traceEvents"]
        wrong = next(filter(None, map(_malformed, events)), None) or _unpaired(events)
        return (wrong and (wrong, outcome.text())), events


def _malformed(event):
    """Returns what an event lacks by the Trace Event Format, or None."""
    wanted = {"M": {"name": str, "pid": int, "args": dict}, "E": {"pid": int, "tid": int, "ts": float}}
    wanted["B"] = {**wanted["E"], "name": str}
    wanted["i"] = {**wanted["B"], "s": str}
    fields = wanted.get(event.get("ph"), {"ph": None})
    for field, kind in fields.items():
        if kind is None or not isinstance(event.get(field), kind):
            return f"{field} is wrong in {event}"
    return None


def _unpaired(events):
    """Returns an end without a begin on its track. Only an overwritten begin may cause that; such ends are left out."""
    depth = {}
    for event in events:
        if event["ph"] in "BE":
            track = event["pid"], event["tid"]
            depth[track] = depth.get(track, 0) + (1 if event["ph"] == "B" else -1)
            if depth[track] < 0:
                return f"nothing has begun that ends in {event}"
    return None


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
                  "post: RTS", "poll: arrival", "poll: progress", "wait"]
        lacking = _lacks(events, rank, wanted)
        if lacking:
            return lacking, json.dumps(events[:200])
        if _open_calls(events, rank):
            return f"rank {rank} has not returned from {_open_calls(events, rank)}", ""
        times = [event["ts"] for event in events if event["pid"] == rank and "ts" in event]
        if times != sorted(times) or times[0] < 0:
            return f"rank {rank}: the points are not in the order of time", str(times[:100])
    # The begin of a send's call and its post share one clock reading, which takes longer than the time between them.
    own = [event for event in events if event["pid"] == 0 and "ts" in event]
    posts = [(call, post) for call, post in zip(own, own[1:]) if (call.get("name"), post.get("name")) == ("MPI_Send", "post")]
    if not posts or any(call["ts"] != post["ts"] for call, post in posts):
        return "a send's call and post have two times", str(posts[:3])
    short = [event for event in events if event.get("name") == "post: short" and event["pid"] == 0]
    if short[0]["args"] != {"peer": 1, "tag": 5, "bytes": 8}:
        return "the first short message is another one", str(short[0])
    return None


def case_threads(session):
    problem, events = _trace(session, ["multiple"])
    if problem:
        return problem
    lacking = _lacks(events, 0, ["MPI_Send", "MPI_Recv", "post"])
    if lacking:
        return lacking, ""
    own = [event for event in events if event["pid"] == 0]
    names = {event["tid"]: event["args"]["name"] for event in own if event.get("name") == "thread_name"}
    tracks = {event["tid"] for event in own if event["ph"] != "M"}
    if len(tracks) < 2 or tracks != set(names) or list(names.values()).count("main thread") != 1:
        return f"the threads {sorted(tracks)} are named {names}", ""
    return None


def case_killed(session):
    """The last call of a rank that waits for a killed one. The launcher may end the rank in the call, or only after the
    rank has learnt of the death: then the call has returned with an error."""
    problem, events = _trace(session, ["kill"], code=137)
    if problem:
        return problem
    calls = [event["name"] for event in events if event["pid"] == 0 and event["ph"] == "B" and event["name"].startswith("MPI_")]
    right = calls[-1:] == ["MPI_Recv"] and _open_calls(events, 0) in ([], ["MPI_Recv"])
    return None if right else (f"rank 0's last call was {calls[-1:]}, and it was in {_open_calls(events, 0)}", "")


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
    path = os.path.join(session.folder, "missing", "trace.json")
    env = {"FASTPATH_TRACE": path}
    outcome = session.mpirun(2, [session.binary("traced")], env=env).finish()
    if outcome.code != 2 or f"FASTPATH_TRACE={path}" not in outcome.err:
        return "the file was not refused", outcome.text()
    return None


def case_otf2(session):
    """The converter to OTF2 keeps every interval and moment of every rank with its values; without OTF2's module it names
    what to install."""
    converter = os.path.join(session.prefix, "share", "fastpath", "trace_otf2.py")
    path, folder = os.path.join(session.folder, "trace.json"), os.path.join(session.folder, "otf2")
    outcome = session.mpirun(2, [session.binary("traced")], env={"FASTPATH_TRACE": path}).finish()
    if problem := outcome.problem(quiet=False):
        return problem, outcome.text()
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    wanted = {name: [[event["name"], event.get("args", {})] for event in events
                     if event["pid"] == rank and event["ph"] in "Bi"] for rank, name in names.items()}
    python = os.path.join(packages.python("otf2==3.2"), "bin", "python")
    for words in ([converter, path, folder], ["-c", OTF2_READER, os.path.join(folder, "traces.otf2")]):
        done = subprocess.run([python, *words], capture_output=True, text=True)
        if done.returncode:
            return "the converter or the reader failed", done.stderr
    found = json.loads(done.stdout)
    if found != wanted or not all(found.values()):
        counts = {name: len(entered) for name, entered in found.items()}
        return f"the regions differ: {counts} instead of {({name: len(entered) for name, entered in wanted.items()})}"
    done = subprocess.run([sys.executable, "-I", "-S", converter, path, folder], capture_output=True, text=True)
    return None if done.returncode == 1 and "python3-otf2" in done.stderr else ("the remedy is missing", done.stderr)
