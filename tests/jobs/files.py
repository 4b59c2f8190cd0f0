"""What happens to files: the disk is full, a rank is killed while all write; what is told of them."""

import json
import os
import shutil
import subprocess
import tempfile

MOUNTS = [["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]]


def _own_mount():
    """The words that start a program with mounts of its own; None where that is not allowed."""
    for words in MOUNTS:
        if shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True).returncode == 0:
            return words
    return None


def case_disk_full(session):
    return _fill_disk(session, [])


def case_disk_full_together(session):
    """The disk is full in one aggregator."""
    return _fill_disk(session, ["together"])


def _fill_disk(session, more):
    words = _own_mount()
    if words is None:
        session.skip("files.disk_full", "no file system can be mounted here")
        return None
    with tempfile.TemporaryDirectory() as folder:
        for ranks in (1, 2, 4):
            program = [session.mpiexec, "-n", str(ranks), "--timeout", "60", session.binary("file_faults"), "full",
                       os.path.join(folder, "file"), *more]
            mount = f'mount -t tmpfs -o size=1m none {folder} && exec "$@"'
            outcome = session.start([*words, "sh", "-c", mount, "sh", *program]).finish()
            problem = outcome.problem()
            if problem:
                return f"{ranks} ranks: {problem}", outcome.text()
    return None


def case_rank_killed(session):
    return _kill_rank(session, [])


def case_rank_killed_together(session):
    """A rank is killed while others have its bytes, or it has theirs."""
    return _kill_rank(session, ["together"])


def _kill_rank(session, more):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "file")
        killed = session.mpirun(3, [session.binary("file_faults"), "kill", path, *more]).finish()
        if killed.code != 137 or killed.left:
            return f"exit code {killed.code} instead of 137; left: {killed.left}", killed.text()
        if os.listdir(folder) != ["file"]:
            return f"there is more than the file: {os.listdir(folder)}", killed.text()
        again = session.mpirun(3, [session.binary("file_faults"), "again", path, *more]).finish()
        problem = again.problem()
        return (f"opened again: {problem}", again.text()) if problem else None


def case_lustre(session):
    """Stripes are asked for when a file is made, and told of one that is there: beside a library in place of Lustre."""
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "lustre.so")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lustre.c")
        made = subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-o", library, source, "-ldl"], capture_output=True,
                              text=True)
        if made.returncode:
            return "the library in place of Lustre does not compile", made.stderr
        for ranks in (1, 3):
            place = os.path.join(folder, str(ranks))
            os.mkdir(place)
            words = ["env", f"LD_PRELOAD={library}", f"FAKE_LUSTRE={place}", session.binary("file_lustre"), place]
            outcome = session.mpirun(ranks, words).finish()
            problem = outcome.problem()
            if problem:
                return f"{ranks} ranks: {problem}", outcome.text()
    return None


def case_report(session):
    """The report says of each file what was done with it, and which ranks moved bytes for others."""
    env = {"FASTPATH_REPORT": "json"}
    outcome = session.mpirun(2, [session.binary("file_counted")], env=env).finish()
    problem = outcome.problem(quiet=False)
    if problem:
        return problem, outcome.text()
    lines = [json.loads(line) for line in outcome.err.splitlines() if '"file"' in line]
    if sorted(line["rank"] for line in lines) != [0, 1]:
        return f"the report has {len(lines)} lines of files", outcome.text()
    for line in lines:
        # Once all pieces went by way of aggregators; single pieces are 1000 bytes written and 600 read.
        right = (line["exchanged"] == {"number": 1, "bytes": 32768} and line["aggregators"]
                 and set(line["aggregators"]) <= {0, 1} and line["sieved"]["bytes"] > 0
                 and line["read"]["bytes"] >= 600 + 32768 and line["written"]["number"] >= 1)
        if not right:
            return f"the report says {line}", outcome.text()
    if sum(line["written"]["bytes"] + line["stored"]["bytes"] for line in lines) != 2 * (1000 + 2 * 32768):
        return f"the report says {lines}", outcome.text()
    return None


def case_trace(session):
    """A trace shows reading and writing within the calls that do so."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        outcome = session.mpirun(2, [session.binary("file_counted")], env={"FASTPATH_TRACE": path}).finish()
        problem = outcome.problem(quiet=False)
        if problem:
            return problem, outcome.text()
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    for rank in range(2):
        stack, seen = [], set()
        for event in events:
            if event["pid"] != rank or event["ph"] not in "BE":
                continue
            if event["ph"] == "E":
                stack.pop()
                continue
            if event["name"].startswith("file: "):
                seen.add((stack[-1], event["name"], event["args"]["bytes"]))
            stack.append(event["name"])
        wanted = {("MPI_File_write_at", "file: write", 1000), ("MPI_File_read_at", "file: read", 600)}
        if not wanted <= seen:
            return f"rank {rank}: the trace has {sorted(seen)}", outcome.text()
    return None
