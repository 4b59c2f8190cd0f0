"""FASTPATH_PROFILE: calls and bytes by function and call site, as text, JSON and HTML. A profile changes no outcome."""

import json
import os
import re
import subprocess

from harness import packages, program
from harness.program import Program

SENDS, STARTS, THREADS, ROUNDS = 7, 5, 4, 250


def _profile(session, words, ranks, code=0, name="profile", env=None):
    """Runs a program with a profile; returns (problem and text, or None; outcome; the prefix of the files)."""
    prefix = os.path.join(session.folder, name)
    outcome = session.mpirun(ranks, words, env={"FASTPATH_PROFILE": prefix, **(env or {})}).finish()
    problem = outcome.problem(code, quiet=False)
    return problem and (problem, outcome.text()), outcome, prefix


def check_printed(outcome, pattern, what):
    """Returns what is wrong, or None, if a job must succeed and print `what`, a match of `pattern`, to standard error."""
    problem = outcome.problem(quiet=False)
    if not problem and not re.search(pattern, outcome.err, re.MULTILINE):
        problem = f"{what} is missing"
    return problem and (problem, outcome.text())


def _read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def _totals(report):
    return {one["function"]: (one["calls"], one["bytes"]) for one in report["functions"]}


def _expected(ranks):
    """Calls and bytes of `profile_counts counts` on all ranks together."""
    senders = ranks // 2
    each = {
        "MPI_Comm_get_parent": 0, "MPI_Comm_rank": 0, "MPI_Comm_size": 0, "MPI_Ssend": 0, "MPI_Send_init": 0,
        "MPI_Recv_init": 0, "MPI_Alltoall": ranks * 8, "MPI_Win_create": 0, "MPI_Put": 16, "MPI_Win_free": 0,
        "MPI_File_open": 0, "MPI_File_write_at": 32, "MPI_File_close": 0, "MPI_Scan": 4,
    }
    return {
        **{name: (ranks, ranks * size) for name, size in each.items()},
        "MPI_Send": (senders * SENDS, senders * SENDS * 1000),
        "MPI_Recv": (senders * SENDS, 0),
        "MPI_Irecv": (3 * ranks, 0),
        "MPI_Isend": (3 * ranks, 3 * ranks * 64),
        "MPI_Startall": (STARTS * ranks, STARTS * ranks * 12),
        "MPI_Waitall": ((3 + STARTS) * ranks, 0),
        "MPI_Request_free": (2 * ranks, 0),
        "MPI_Allreduce": (2 * ranks, 2 * ranks * 20),
        "MPI_Bcast": (ranks, 100),
        "MPI_Win_fence": (2 * ranks, 0),
    }


def case_counts(session):
    """The numbers are exact, on 2 and 4 ranks, and the three forms of the report agree."""
    for ranks in (2, 4):
        words = [session.binary("profile_counts"), "counts", os.path.join(session.folder, f"data-{ranks}")]
        problem, outcome, prefix = _profile(session, words, ranks, name=f"profile-{ranks}")
        if problem:
            return problem
        report = json.loads(_read(prefix + ".json"))
        found, expected = _totals(report), _expected(ranks)
        if found != expected:
            wrong = {name: (found.get(name), expected.get(name)) for name in {**found, **expected}
                     if found.get(name) != expected.get(name)}
            return f"{ranks} ranks: calls and bytes, found and expected: {wrong}", outcome.text()
        if [one["rank"] for one in report["ranks"]] != list(range(ranks)) or report["imbalance"] < 1:
            return "the ranks are wrong", json.dumps(report["ranks"])
        if any(one["mpi_seconds"] > one["wall_seconds"] for one in report["ranks"]):
            return "a rank has more MPI time than time", json.dumps(report["ranks"])
        reduced = [call for call in report["calls"] if call["function"] == "MPI_Allreduce"]
        sites = [report["sites"][call["site"] - 1] for call in reduced]
        if [(site["caller"], os.path.basename(site["file"])) for site in sites] != [("reduce", "profile_counts.c")]:
            return "the site of MPI_Allreduce is wrong", json.dumps(sites)
        if [one["calls"] for one in reduced[0]["by_rank"]] != [2] * ranks:
            return "the calls by rank are wrong", json.dumps(reduced)
        text, page = _read(prefix + ".txt"), _read(prefix + ".html")
        for name, (calls, size) in expected.items():
            if not re.search(rf"^{name} +{calls} .* {size}$", text, re.MULTILINE):
                return f"the text lacks {calls} calls and {size} bytes of {name}", text
            if f"<td class=\"name\">{name}</td>" not in page:
                return f"the page lacks {name}", page
        for kind in ("sent", "windows", "files"):
            if not re.search(rf"^@--- Bytes.*{kind}", text, re.MULTILINE):
                return f"the text lacks the bytes of {kind}", text
        if prefix not in outcome.err:
            return "the files are not named", outcome.text()
    return None


def case_standard_error(session):
    """FASTPATH_PROFILE=1 prints the text. Nothing is printed for FASTPATH_PROFILE=0 and without the variable."""
    words = [session.binary("profile_counts")]
    outcome = session.mpirun(2, words, env={"FASTPATH_PROFILE": "1"}).finish()
    if problem := outcome.problem(quiet=False):
        return problem, outcome.text()
    if not re.search(r"^MPI_Allreduce +2 .* 40$", outcome.err, re.MULTILINE) or os.listdir(session.folder):
        return "the text is not there, or a file is", outcome.text()
    for env in ({"FASTPATH_PROFILE": "0"}, {}):
        outcome = session.mpirun(2, words, env=env).finish()
        if problem := outcome.problem():
            return problem, outcome.text()
    return None


def case_threads(session):
    """Calls of several threads at once are all counted."""
    problem, outcome, prefix = _profile(session, [session.binary("profile_counts"), "threads"], 2)
    if problem:
        return problem
    found = _totals(json.loads(_read(prefix + ".json")))["MPI_Sendrecv"]
    calls = 2 * THREADS * ROUNDS
    return (f"{found} instead of {calls} calls", outcome.text()) if found != (calls, 4 * calls) else None


def case_errors(session):
    """A call that fails has no bytes, and the profile does not read its invalid handles."""
    problem, outcome, prefix = _profile(session, [session.binary("profile_counts"), "errors"], 2)
    if problem:
        return problem
    found = _totals(json.loads(_read(prefix + ".json")))
    wrong = {name: found.get(name) for name in ("MPI_Send", "MPI_Send_init", "MPI_Bcast") if found.get(name) != (2, 0)}
    return (f"calls and bytes are {wrong}", outcome.text()) if wrong else None


def case_intercommunicator(session):
    """Reductions with a scatter count the parts of the own group; the root of a gather sends nothing."""
    problem, outcome, prefix = _profile(session, [session.binary("profile_counts"), "inter"], 3)
    if problem:
        return problem
    found = _totals(json.loads(_read(prefix + ".json")))
    expected = {"MPI_Reduce_scatter": (3, 48), "MPI_Reduce_scatter_block": (3, 48), "MPI_Gather": (3, 24)}
    wrong = {name: found.get(name) for name, value in expected.items() if found.get(name) != value}
    return (f"calls and bytes are {wrong} instead of {expected}", outcome.text()) if wrong else None


def case_spawned(session):
    """Spawned ranks have a report of their own."""
    problem, outcome, prefix = _profile(session, [session.binary("profile_counts"), "spawn"], 2)
    if problem:
        return problem
    names = [name for name in os.listdir(session.folder) if name.endswith(".json")]
    reports = {name: _totals(json.loads(_read(os.path.join(session.folder, name)))) for name in names}
    calls = {name: report.get("MPI_Comm_spawn") for name, report in reports.items()}
    if len(reports) != 2 or calls.pop("profile.json", None) != (2, 0) or list(calls.values()) != [None]:
        return f"the reports are {reports}", outcome.text()
    return None


def case_abort(session):
    """An abort keeps its code; the aborting rank's calls are reported."""
    problem, outcome, prefix = _profile(session, [session.binary("profile_counts"), "abort"], 2, code=7)
    if problem:
        return problem
    report = json.loads(_read(prefix + ".rank-1.json"))
    if report["aborted_by"] != 1 or _totals(report)["MPI_Allreduce"] != (1, 20):
        return "the report is wrong", json.dumps(report)
    return None


def case_unwritable(session):
    """A path that cannot be written changes no outcome."""
    env = {"FASTPATH_PROFILE": os.path.join(session.folder, "file", "profile")}
    with open(os.path.join(session.folder, "file"), "w", encoding="utf-8"):
        outcome = session.mpirun(2, [session.binary("profile_counts")], env=env).finish()
    return check_printed(outcome, "cannot be written", "the reason")


def case_fortran(session):
    """Call sites of Fortran programs are lines of the program, not of the Fortran entry points."""
    made = Program(program.source("fortran_messages"), "mpi_f08")
    if complaint := made.compile(session.mpicc, session.build):
        return complaint
    problem, outcome, prefix = _profile(session, [made.binary], 2)
    if problem:
        return problem
    sites = json.loads(_read(prefix + ".json"))["sites"]
    wrong = [site for site in sites if not site.get("file", "").endswith((".f90", ".inc"))]
    return (f"no lines of the program: {wrong}", outcome.text()) if wrong or not sites else None


def case_without_launcher(session):
    """Without the profiling library a rank gives the reason, and the command that loads it."""
    env = {"FASTPATH_PROFILE": "1"}
    outcome = session.start([session.binary("profile_counts")], env=env).finish()
    if problem := outcome.problem(quiet=False):
        return problem, outcome.text()
    if not (match := re.search(r"LD_PRELOAD=(\S+)", outcome.err)):
        return "the command is missing", outcome.text()
    outcome = session.start([session.binary("profile_counts")], env={**env, "LD_PRELOAD": match[1]}).finish()
    return check_printed(outcome, r"^MPI_Allreduce +1 .* 20$", "the profile")


def case_other_mpi(session):
    """A program of an MPI with another ABI runs without a profile, and the reason is printed."""
    folder = packages.wheel("mpich")
    binary = os.path.join(session.folder, "profile_counts")
    words = [os.path.join(folder, "bin", "mpicc"), *program.FLAGS, "-o", binary, program.source("profile_counts")]
    subprocess.run(words, check=True, capture_output=True)
    env = {"FASTPATH_PROFILE": "1", "LD_PRELOAD": os.path.join(session.prefix, "lib", "libfastpath_profile.so")}
    launcher = os.path.join(folder, "bin", "mpiexec")
    outcome = session.start([launcher, "-n", "2", binary, "counts", os.path.join(session.folder, "data")], env=env).finish()
    return check_printed(outcome, "uses an MPI without the standard ABI", "the reason")
