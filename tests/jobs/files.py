"""Files under faults: a full disk, calls that fail or transfer less, a rank that is killed; and their reports."""

import contextlib
import errno
import json
import os
import shutil
import subprocess
import tempfile
from harness.slices import sliced

# The jobs of this file have several ranks, which compute or spin.
NEEDS = {"processors": 2}

MOUNTS = [["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]]


def _own_mount():
    """Command prefix for a program with private mounts; None if that is not permitted."""
    for words in MOUNTS:
        if shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True).returncode == 0:
            return words
    return None


@contextlib.contextmanager
def _preloaded(name):
    """A library compiled from a C file of this folder, to be preloaded, and a folder for its data."""
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, f"{name}.so")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.c")
        flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-ldl"]
        subprocess.run(["cc", "-o", library, source, *flags], check=True)
        inside = os.path.join(folder, "inside")
        os.mkdir(inside)
        yield library, inside


class _Faults:
    """Command prefix for a program whose files in `folder` have faults, and the number of each fault."""

    def __init__(self, library, folder, words, rank=None):
        self.folder, self.log = folder, f"{library}.log"
        self.words = ["env", f"LD_PRELOAD={library}", f"TMPDIR={folder}", f"FAULTS={words}", f"FAULTS_LOG={self.log}"]
        if rank is not None:
            self.words.append(f"FAULTS_RANK={rank}")
        self.wanted = ["short" in words, "eintr" in words, "=" in words, "lie" in words]

    def problem(self, ranks, outcome):
        """Returns what is wrong with a job; a run without faults is wrong too."""
        counted = []
        if os.path.exists(self.log):
            with open(self.log, encoding="utf-8") as file:
                counted = [[int(word) for word in line.split()] for line in file]
            os.unlink(self.log)
        problem = outcome.problem()
        if problem is None and len(counted) != ranks:
            problem = f"{len(counted)} of {ranks} ranks had faults"
        if problem is None and [sum(column) > 0 for column in zip(*counted)] != self.wanted:
            problem = f"faults by rank: {counted}"
        return problem


def case_disk_full(session):
    return _fill_disk(session, [])


def case_disk_full_together(session):
    """The disk is full in one aggregator."""
    return _fill_disk(session, ["together"])


def case_disk_full_pieces(session):
    """The disk has no space for pages that the ranks store to."""
    return _fill_disk(session, ["pieces"])


def case_disk_full_stored(session):
    """A page has no space when it is stored to, although it was promised: the kernel sends SIGBUS."""
    return _fill_disk(session, ["pieces"], "lie")


def _fill_disk(session, more, faults=""):
    with _preloaded("faults") as (library, folder):
        for ranks in (1, 2, 4):
            made = _Faults(library, folder, faults)
            words = [*made.words, session.binary("file_faults"), "full", os.path.join(folder, "file"), *more]
            outcome = _run_mounted(session, f"mount -t tmpfs -o size=1m none {folder}", ranks, words)
            if outcome is None:
                return None
            problem = made.problem(ranks, outcome)
            if problem:
                return f"{ranks} ranks: {problem}", outcome.text()
    return None


def _run_mounted(session, mount, ranks, words):
    """Runs a job with a private file system; None if none can be mounted."""
    own = _own_mount()
    if own is None:
        session.skip("files", f"no file system can be mounted here: {words[-1]}")
        return None
    program = [session.mpiexec, "-n", str(ranks), "--timeout", "60", *words]
    return session.start([*own, "sh", "-c", f'{mount} && exec "$@"', "sh", *program]).finish()


def case_read_only(session):
    """A file on a file system that is mounted read-only."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "file")
        mount = f"mount -t tmpfs none {folder} && echo old > {path} && mount -o remount,ro {folder}"
        outcome = _run_mounted(session, mount, 3, [session.binary("file_faults"), "fixed", path])
        problem = outcome and outcome.problem()
        return (problem, outcome.text()) if problem else None


@sliced
def case_short_and_interrupted(session):
    """Transfers move less than requested, and signals interrupt calls: the program sees neither."""
    runs = [(name, []) for name in ("file_basic", "file_access", "file_requests", "file_representation")]
    runs += [("file_together", [word]) for word in ("enable", "automatic", "disable", "sieve")]
    with _preloaded("faults") as (library, folder):
        for name, args in runs:
            for ranks in (1, 3):
                made = _Faults(library, folder, "short,eintr")
                env = {"FASTPATH_DISABLE": "file-mapping"} if args or ranks == 3 else {}
                outcome = session.mpirun(ranks, [*made.words, session.binary(name), *args], env=env).finish()
                problem = made.problem(ranks, outcome)
                if problem:
                    return f"{name} {' '.join(args)} on {ranks} ranks: {problem}", outcome.text()
    return None


def case_quota(session):
    """The quota is used up in one rank, which may be an aggregator."""
    return _fail_one(session, "write", errno.EDQUOT)


def case_error_writing(session):
    return _fail_one(session, "write", errno.EIO)


def case_error_reading(session):
    return _fail_one(session, "read", errno.EIO)


def _fail_one(session, what, error):
    """Calls of rank 1 fail, earlier if a block takes few calls; in addition all transfers are short."""
    with _preloaded("faults") as (library, folder):
        for layout, number in (("apart", 6), ("rows", 6), ("pieces", 2), ("sieved", 2)):
            env = {"FASTPATH_DISABLE": "file-mapping"} if layout == "sieved" else {}
            for ranks in (2, 4):
                made = _Faults(library, folder, f"short,eintr,{what}={number}:{error}", 1)
                program = [session.binary("file_failing"), what, str(error), "1", os.path.join(folder, "file"), layout]
                outcome = session.mpirun(ranks, [*made.words, *program], env=env).finish()
                problem = made.problem(ranks, outcome)
                if problem:
                    return f"{layout}, {ranks} ranks: {problem}", outcome.text()
    return None


def case_error_of_all(session):
    """Calls of rank 0 that set size or space fail; or sync and close fail in one rank."""
    with _preloaded("faults") as (library, folder):
        for error in (errno.EDQUOT, errno.EIO):
            for ranks, rank in ((1, 0), (3, 0), (3, 2)):
                words = ",".join(f"{call}=1:{error}" for call in ("size", "write", "sync", "close"))
                made = _Faults(library, folder, words, rank)
                path = os.path.join(folder, "file")
                program = [session.binary("file_failing"), "rest", str(error), str(rank), path, "apart"]
                outcome = session.mpirun(ranks, [*made.words, *program]).finish()
                problem = made.problem(ranks, outcome)
                if problem:
                    return f"rank {rank} of {ranks}: {problem}", outcome.text()
    return None


def case_rank_killed(session):
    return _kill_rank(session, [])


def case_rank_killed_together(session):
    """A rank is killed while others hold its bytes, or it holds theirs."""
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
    """Stripes are requested when a file is created, and reported for an existing one, with an emulation of Lustre."""
    with _preloaded("lustre") as (library, folder):
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
    """The report lists the accesses to each file, and which ranks were aggregators."""
    env = {"FASTPATH_REPORT": "json"}
    outcome = session.mpirun(2, [session.binary("file_counted")], env=env).finish()
    problem = outcome.problem(quiet=False)
    if problem:
        return problem, outcome.text()
    lines = [json.loads(line) for line in outcome.err.splitlines() if '"file"' in line]
    if sorted(line["rank"] for line in lines) != [0, 1]:
        return f"the report has {len(lines)} lines of files", outcome.text()
    for line in lines:
        # One access passed through aggregators; single pieces are 1000 bytes written and 600 read.
        right = (line["exchanged"] == {"number": 1, "bytes": 32768} and line["aggregators"]
                 and set(line["aggregators"]) <= {0, 1} and line["sieved"]["bytes"] > 0
                 and line["read"]["bytes"] >= 600 + 32768 and line["written"]["number"] >= 1)
        if not right:
            return f"the report has {line}", outcome.text()
    if sum(line["written"]["bytes"] + line["stored"]["bytes"] for line in lines) != 2 * (1000 + 2 * 32768):
        return f"the report has {lines}", outcome.text()
    return None


def case_romio_hints(session):
    """The file of ROMIO_HINTS gives hints that the program does not; the report lists those without effect once."""
    with tempfile.TemporaryDirectory() as folder:
        hints = os.path.join(folder, "hints")
        with open(hints, "w", encoding="utf-8") as file:
            file.write("# ours\ncb_nodes 2\ncb_buffer_size 8192\nromio_lustre_co_ratio 4\n")
        for env in [{}, {"FASTPATH_REPORT": "json"}, {"FASTPATH_REPORT": "1"}]:
            words = [session.binary("file_hints"), os.path.join(folder, "data")]
            outcome = session.mpirun(2, words, env={"ROMIO_HINTS": hints, **env}).finish()
            problem = outcome.problem(quiet=not env)
            if problem:
                return problem, outcome.text()
            if outcome.out.splitlines() != 2 * ["cb_nodes 3", "cb_buffer_size 8192"]:
                return f"the hints in use are {outcome.out!r}", outcome.text()
            told = [line for line in outcome.err.splitlines() if "romio_lustre_co_ratio=4" in line]
            if len(told) != bool(env) or env and not ("ROMIO_HINTS=" in told[0] and "direct_io=true" in told[0]):
                return f"{env}: hints without effect are reported by {told}", outcome.text()
        outcome = session.mpirun(2, words, env={"ROMIO_HINTS": folder + "/none", "FASTPATH_REPORT": "1"}).finish()
        if outcome.problem(quiet=False) or f"ROMIO_HINTS={folder}/none: No such file" not in outcome.err:
            return "a missing file of hints is not reported", outcome.text()
    return None


def case_report_names(session):
    """The report is valid JSON for any file name."""
    names = ["a\x1bb", "e\u0301t\u00e9", 'q"q\\', "tab\t", "\u200b", "no UTF-8: \udcff"]
    with tempfile.TemporaryDirectory() as folder:
        words = [session.binary("file_named"), *(os.path.join(folder, name) for name in names)]
        outcome = session.mpirun(1, words, env={"FASTPATH_REPORT": "json"}).finish()
    problem = outcome.problem(quiet=False)
    if problem:
        return problem, outcome.text()
    told = [json.loads(line)["file"] for line in outcome.err.splitlines() if '"file"' in line]
    wanted = [os.path.join(folder, name).replace("\udcff", "\ufffd") for name in names]
    return None if told == wanted else (f"the report names {told}", outcome.text())


def case_trace(session):
    """A trace shows reading and writing within the calls that cause it."""
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
