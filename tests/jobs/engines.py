"""Programs started as one job by another launcher: Hydra, PRRTE, and a test launcher for PMI-1 with the least
helpful behavior of engines (harness/pmi.py). Tests over several hosts are in hosts.py."""

import functools
import json
import os
import re
import subprocess
import sys
import time

from harness import engines, foreign, program

# Quick programs of tests/c, one of each kind.
SAMPLE = ["world", "pt2pt_order", "pt2pt_wildcard", "pt2pt_probe", "coll_move", "coll_forms",
          "comm_create", "rma_move", "rma_locks", "sessions", "file_basic", "threads_brief", "topology", "pair_memory"]
FIRST = ["world", "pt2pt_order", "coll_move", "sessions"]

# Ways in which a rank ends (tests/c/fixtures/ends.c), and the expected report, if the engine leaves time for it.
ENDS = {
    "kill": "has ended without calling MPI_Finalize",
    "exit": "exited with code 7",
    "exit0": "exited with code 0 before calling MPI_Finalize",
    "_exit": "has ended without calling MPI_Finalize",
    "abort": "MPI_Abort with code 7",
    "error": "MPI_ERR_BUFFER",
}
# Engines that pass exit codes on exactly.
CODES = {"exit": 7, "abort": 7}
# Engines that store service names.
KEEP_NAMES = (engines.Pmi, engines.Hydra, engines.Prrte)
# Engines that start further processes, and what they support (spawn_direct.c). Over a connection Hydra 5.0 sometimes
# does not answer a fence of a spawned job (decision 0071).
SPAWN = {engines.Pmi: ["spawns", "ends"], engines.Hydra: ["spawns", "shares", "multiple", "ends"], engines.HydraByPort: ["skips"],
         engines.Prrte: ["spawns", "shares", "multiple", "tells"]}
# Cases of each engine that run with every change; the others run in their slice.
EVERY_CHANGE = {"finishes", "nests"}
ENGINES = [engines.Pmi, engines.PmiAsSlurm, engines.Hydra, engines.HydraByPort, engines.Prrte]

# A rank that starts other programs: one without a launcher, and two ranks with the launcher that started it.
PARENT = """
import ctypes, subprocess, sys
mpi = ctypes.CDLL(sys.argv[1])
mpi.MPI_Init(None, None)
rank = ctypes.c_int()
child = subprocess.run(sys.argv[2:], capture_output=True, text=True, timeout=60)
sys.stdout.write("child: " + repr(child.stdout.splitlines()[-1:]) + child.stderr + "\\n")
mpi.MPI_Finalize()
"""


# Wrappers between a launcher and its processes: variables they add, and how they start a program.
ADD = "export PMI_X=1 PMIX_SERVER_X=1 OMPI_COMM_WORLD_SIZE=1 SLURM_NTASKS=1;"
AND_START = '"$@"; exit $?'


@functools.cache
def _engine(kind):
    return kind()


def _run(session, kind, ranks, words, timeout=60, **more):
    running = session.start(_engine(kind).start(ranks, words), timeout=timeout, **more)
    running.await_end(10)
    outcome = running.finish()
    outcome.err = foreign.remove(outcome.err)
    return outcome


def _programs(session, kind, names, ranks):
    for one in program.find():
        if one.name not in names:
            continue
        session.binary(one.name)
        one.compile(session.mpicc, session.build)
        for n in ranks:
            for args in one.args:
                outcome = _run(session, kind, n, [one.binary, *args], one.timeout, env=one.env)
                if problem := outcome.problem(one.exit, one.quiet):
                    return f"{one.name} {args} on {n} ranks: {problem}", outcome.text()
    return None


def _ends(session, kind):
    for how, text in ENDS.items():
        for rank in (0, 2):
            outcome = _run(session, kind, 3, [session.binary("ends"), str(rank), how])
            what = f"rank {rank} ends by {how}"
            if outcome.code is None or outcome.left:
                return f"{what}: {outcome.problem()}", outcome.text()
            if outcome.code == 0 or how in CODES and outcome.code != CODES[how]:
                return f"{what}: exit code {outcome.code}", outcome.text()
            # Hydra ends the job by itself after a process ends, and may be first.
            if text not in outcome.err and not (how in ("kill", "_exit") and kind is not engines.Pmi):
                return f"{what}: it is not reported", outcome.text()
    return None


def _finishes(session, kind):
    """A successful job: the last exit code counts, and messages of the engine are passed on."""
    words = [session.binary("ends"), "1", "finalized"]
    outcome = _run(session, kind, 3, words)
    if outcome.code != 3 or "fastpath" in outcome.err:
        return f"a rank leaves with code 3 after MPI_Finalize: {outcome.code}", outcome.text()
    if set(re.findall(r"appnum (\d+)", outcome.out)) != {"0"}:
        return "another number of the program", outcome.text()
    late = _run(session, kind, 2, [session.binary("ends")], env={"ENDS_LATE": "1"})
    if problem := late.problem():
        return f"MPI_Finalize by a destructor: {problem}", late.text()
    alone = _run(session, kind, 1, [session.binary("world")])
    if "rank 0 of 1\n" not in alone.out:
        return f"a job of one: {alone.problem()}", alone.text()
    return alone.problem(), alone.text()


def _nests(session, kind):
    """A child of a rank is no rank; a process that a launcher starts for a rank, ours or another, is one."""
    engine, world = _engine(kind), session.binary("world")
    library = os.path.join(session.prefix, "lib", "libmpi_abi.so.1")
    parent = [sys.executable, "-c", PARENT, library]
    inner = {
        "a program": ([world], 1),
        "a program, by a script": (["sh", "-c", ADD + AND_START, "sh", world], 1),
        "a program without variables": (["env", "-i", world], 1),
        "a program without variables, by a script": (["sh", "-c", 'env -i "$@"; exit $?', "sh", world], 1),
        "our mpiexec": ([session.mpiexec, "-n", "2", world], 2),
        "the launcher again": (engine.start(2, [world]), 2),
    }
    for what, (words, ranks) in inner.items():
        outcome = _run(session, kind, 2, [*parent, *words])
        found = re.findall(r"child: \['rank \d of (\d)'\]", outcome.out)
        if outcome.code != 0 or found != [str(ranks)] * 2:
            return f"{what} inside of a rank: {outcome.problem() or found}", outcome.text()
    words = [session.mpiexec, "-n", "1", *engine.start(2, [world])]
    outcome = session.start(words).finish()
    wrong = None if sorted(re.findall(r"rank \d of \d", outcome.out)) == ["rank 0 of 2", "rank 1 of 2"] else "no job of two"
    return outcome.problem() or wrong, outcome.text()


# Effects of wrappers on variables, and whether the processes still find each other. A process that does not find its
# job is told so, and never runs alone silently.
WRAPPERS = [
    (["sh", "-c", ADD + AND_START, "sh"], True),
    (["env", "OMPI_COMM_WORLD_SIZE=1", "PMIX_SERVER_X=1"], True),
    (["bash", "-c", "for one in ${!PMI_*} ${!PMIX_*}; do export $one=${!one}; done;" + AND_START, "bash"], True),
    (["sh", "-c", "export PMI_SIZE=1;" + AND_START, "sh"], None),
    # `env` replaces itself by the program, so no wrapper is between it and the launcher.
    (["env", "PMI_SIZE=1"], None),
    (["env", "-u", "PMI_FD", "-u", "PMI_PORT", "-u", "PMIX_NAMESPACE"], None),
    (["bash", "-c", "unset ${!PMI*} ${!OMPI_*} ${!MPI_LOCAL*};" + AND_START, "bash"], False),
    (["sh", "-c", 'env -i "$@"; exit $?', "sh"], False),
    # All variables are removed. The library does not know the test launcher's program.
    (["env", "-i"], False),
]


def _wrapped(session, kind):
    for wrapper, joins in WRAPPERS:
        # Our test launcher starts the ranks in sequence, and the first may search for the second too early.
        if wrapper in (["env", "-i"], ["env", "PMI_SIZE=1"]) and issubclass(kind, engines.Pmi):
            continue
        outcome = _run(session, kind, 2, [*wrapper, session.binary("world")])
        found = sorted(re.findall(r"^rank \d of \d$", outcome.out, re.M))
        if found == ["rank 0 of 2", "rank 1 of 2"] and joins is not False and not outcome.problem():
            continue
        if found or joins or outcome.code in (None, 0) or "FASTPATH_SINGLETON=1" not in outcome.err:
            return f"{wrapper}: {outcome.problem() or found}", outcome.text()
    # The user has requested a job of one rank.
    outcome = _run(session, kind, 2, ["env", "-i", "FASTPATH_SINGLETON=1", session.binary("world")])
    alone = outcome.out.count("rank 0 of 1\n") == 2
    return outcome.problem() or (None if alone else "a job of one rank was requested"), outcome.text()


def _is_refused(outcome):
    return outcome.code not in (None, 0) and "rank 0" not in outcome.out and "FASTPATH_SINGLETON=1" in outcome.err


def _hidden(session, kind):
    """Ranks without variables in a separate process namespace see their parents if /proc shows these. Otherwise a
    socket of the launcher is a reason to warn."""
    if os.geteuid() != 0:
        return session.skip(f"engines.{kind.name}_hidden", "process namespaces need root")
    namespace, world = ["unshare", "--pid", "--fork"], session.binary("world")
    outcome = _run(session, kind, 2, [*namespace, "env", "-i", world])
    if not _is_refused(outcome):
        return f"with the parents in /proc: {outcome.problem()}", outcome.text()
    # No sign of PRRTE is left that the ranks could find.
    if kind is engines.Prrte:
        return None
    namespace.append("--mount-proc")
    outcome = _run(session, kind, 2, [*namespace, "env", "-i", world])
    warnings = outcome.err.count("to a process outside of this process namespace")
    if problem := outcome.problem(quiet=False) or (None if warnings == 2 else f"{warnings} warnings"):
        return f"without: {problem}", outcome.text()
    outcome = _run(session, kind, 2, [*namespace, "env", "-i", "FASTPATH_SINGLETON=1", world])
    return outcome.problem(), outcome.text()


def case_hidden(session):
    """Ranks without variables, started by our mpiexec: they find the job's memory."""
    if os.geteuid() != 0:
        return session.skip("engines.hidden", "process namespaces need root")
    namespace, world = ["unshare", "--pid", "--fork"], session.binary("world")
    for more in ([], ["--mount-proc"]):
        outcome = session.mpirun(2, [*namespace, *more, "env", "-i", world]).finish()
        if not _is_refused(outcome):
            return f"{more}: {outcome.problem()}", outcome.text()
        outcome = session.mpirun(1, [*namespace, *more, "env", "-i", world]).finish()
        if problem := outcome.problem():
            return f"{more}, one rank: {problem}", outcome.text()
    return None


def case_wrapped(session):
    """Ranks in a process namespace, started by our mpiexec: they find the job if its variable is left, and otherwise
    report that it is missing."""
    world = session.binary("world")
    for wrapper in (["env", "-i"], ["sh", "-c", 'env -i "$@"; exit $?', "sh"]):
        outcome = session.mpirun(2, [*wrapper, world]).finish()
        if outcome.code == 0 or "is Fastpath's mpiexec with 2 ranks" not in outcome.err or "rank 0" in outcome.out:
            return f"{wrapper}: {outcome.problem()}", outcome.text()
    alone = session.mpirun(1, ["env", "-i", world]).finish()
    if alone.problem() or "rank 0 of 1\n" not in alone.out:
        return "one rank", alone.text()
    # A child of a rank may run alone.
    parent = [sys.executable, "-c", PARENT, os.path.join(session.prefix, "lib", "libmpi_abi.so.1")]
    child = session.mpirun(2, [*parent, "env", "-i", world]).finish()
    found = re.findall(r"child: \['rank \d of (\d)'\]", child.out)
    return child.problem() or (None if found == ["1"] * 2 else f"children {found}"), child.text()


# Texts that report a live launcher (crates/job/src/detect.rs).
SIGNS = {
    engines.Pmi: r"PMI-1, because PMI_FD=\d+ is (an open socket|a socket to python\S*, an ancestor of this process)",
    engines.PmiAsSlurm: r"PMI-1, because PMI_FD=\d+ is (an open socket|a socket to python\S*, an ancestor of this process)",
    engines.Hydra: r"Hydra .*PMI-1, because PMI_FD=\d+ is a socket to hydra_pmi_proxy, an ancestor of this process",
    engines.HydraByPort: r"Hydra .*PMI-1, because PMI_PORT=\S+ is set",
    engines.Prrte: r"PRRTE .*PMIx, because PMIX_NAMESPACE=prterun\S+ is set, and PMI_FD is not an open socket",
}


def _reports(session, kind):
    """Rank 0 reports once by which launcher the job was joined, and why that launcher was considered alive."""
    for form in ("1", "json"):
        outcome = _run(session, kind, 2, ["env", f"FASTPATH_REPORT={form}", session.binary("world")])
        if problem := outcome.problem(quiet=False):
            return problem, outcome.text()
        lines = [line for line in outcome.err.splitlines() if "started by" in line]
        said = json.loads(lines[0]).get("started", "") if form == "json" and lines else "".join(lines)
        if len(lines) != 1 or not re.search("started by .*" + SIGNS[kind], said):
            return f"FASTPATH_REPORT={form} prints {said!r}", outcome.text()
    return None


def _dynamic(session, kind):
    """Ports work within a host, names if the launcher stores them, spawned processes if it starts them; other calls
    return an error with a remedy."""
    words = [session.binary("spawn_direct"), *(["names"] if issubclass(kind, KEEP_NAMES) else []),
             *SPAWN.get(kind, [])]
    for ranks in (3, 1) if "spawns" in words else (3,):
        outcome = _run(session, kind, ranks, words)
        if problem := outcome.problem():
            return f"{ranks} ranks: {problem}", outcome.text()
    return None


def _ends_spawned(session, kind):
    """The death of a process that the launcher has spawned ends its connected parents, and leaves nothing."""
    for how, code in {"abort": 9, "dies": None, "fails": None}.items():
        outcome = _run(session, kind, 2, [session.binary("spawn_ends"), how], timeout=20)
        if outcome.code in (None, 0) or outcome.left or code not in (None, outcome.code):
            return f"{how}: {outcome.problem(code or 0, quiet=False)}", outcome.text()
    return None


def _shows(session, kind):
    """`fastpath ps` finds the job, and why it does not progress; the library's own threads are not counted."""
    words = [session.binary("ends"), "0", "waits"]
    running = session.start(_engine(kind).start(2, words), timeout=60, env={"FASTPATH_WAIT": "sleep"})
    tool, text = os.path.join(session.prefix, "bin", "fastpath"), ""
    limit = time.monotonic() + 30
    while running.process.poll() is None and "deadlock: " not in text and time.monotonic() < limit:
        ranks = [pid for pid, command in running.processes() if command.startswith(session.binary("ends"))]
        found = [subprocess.run([tool, "ps", str(pid), "--why"], capture_output=True, text=True) for pid in ranks]
        text = "".join(one.stdout for one in found if one.returncode == 0)
    running.process.terminate()
    running.await_end(10)
    running.finish()
    return None if "deadlock: rank 0 waits for rank 1" in text else ("no deadlock is proved", text)


def _name_meeting(job, size):
    """Name by which the ranks of a job find each other on a host (crates/job/src/job/join.rs)."""
    hashed = 0xcbf29ce484222325
    for byte in job.encode():
        hashed = (hashed ^ byte) * 0x100000001b3 % (1 << 64)
    return f"\0fastpath-{os.geteuid()}-{hashed:016x}-{size}"


SQUATTER = """
import os, socket, sys
os.setuid(65534)
taken = socket.socket(socket.AF_UNIX)
taken.bind(sys.argv[1].replace("@", chr(0)))
taken.listen(64)
print("taken", flush=True)
sys.stdin.read()
"""


def case_meeting_of_another_user(session):
    """Another user who has guessed the name by which the ranks of a node meet gets no data of the job: its ranks
    check the user, and report it."""
    if os.geteuid() != 0:
        return session.skip("engines.meeting_of_another_user", "another user is needed, for which this needs root")
    job = f"squatted-{os.getpid()}"
    name = _name_meeting(job, 2).replace("\0", "@")
    squatter = subprocess.Popen([sys.executable, "-c", SQUATTER, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                text=True)
    try:
        if squatter.stdout.readline() != "taken\n":
            return "the name cannot be taken"
        outcome = session.start([*engines.OURS, "--name", job, "-n", "2", session.binary("world")], timeout=60).finish()
    finally:
        squatter.communicate("")
    if outcome.code == 0 or "the process at the other end belongs to user 65534, this process to user 0" not in outcome.err:
        return "a name that another user has", outcome.text()
    free = session.start([*engines.OURS, "--name", job, "-n", "2", session.binary("world")], timeout=60).finish()
    return free.problem(), free.text()


def _sets(session, kind):
    """Process sets on PRRTE's command line are those of sessions, besides the predefined ones."""
    program = [session.binary("sets"), "ocean=2", "ice=1"]
    words = _engine(kind).start(2, ["--pset", "ocean", *program])
    running = session.start([*words, ":", "-n", "1", "--pset", "ice", *program], timeout=60)
    running.await_end(10)
    outcome = running.finish()
    none = _run(session, kind, 2, [session.binary("sets")])
    return outcome.problem() or none.problem()


def _make(check, kind, *arguments):
    def case(session):
        try:
            _engine(kind)
        except OSError as error:
            session.skip(f"engines.{kind.name}", error)
            return None
        return check(session, kind, *arguments)
    return case


for _kind in ENGINES:
    _name = _kind.name.replace("-", "_")
    _cases = {
        "programs": _make(_programs, _kind, FIRST, [2, 4]),
        "ends": _make(_ends, _kind),
        "finishes": _make(_finishes, _kind),
        "nests": _make(_nests, _kind),
        "shows": _make(_shows, _kind),
        "wrapped": _make(_wrapped, _kind),
        "hidden": _make(_hidden, _kind),
        "reports": _make(_reports, _kind),
        "dynamic": _make(_dynamic, _kind),
        "sample": _make(_programs, _kind, SAMPLE, [2, 3, 4]),
    }
    if _kind in (engines.Hydra, engines.Prrte):
        _cases["ends_spawned"] = _make(_ends_spawned, _kind)
    if _kind is engines.Prrte:
        _cases["sets"] = _make(_sets, _kind)
    for _what, _case in _cases.items():
        # PRRTE sometimes fails by itself: exit code 213, or a hang when no rank is left.
        _case.long = _what == "sample" or (_kind.name == "prrte" and _what != "nests")
        _case.sliced = _what not in EVERY_CHANGE
        globals()[f"case_{_name}_{_what}"] = _case
