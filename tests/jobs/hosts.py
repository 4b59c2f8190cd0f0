"""Jobs on several virtual hosts, started by common launchers. Needs root, for the hosts. Hosts that do not answer
are in hosts_waiting.py, the tools in hosts_tools.py."""

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from harness import engines, processes, program
from harness.host_engines import (ENGINES, Agents, AgentsHydra, AgentsPrrte, AgentsSlurm, Hydra, Prrte, SlurmPmi2,
                                  SlurmPmix, lacks_hosts, run, run_words)
from harness.hosts import Hosts, missing
from harness.job import await_word
from harness.slices import sliced
from jobs.engines import ADD, AND_START, PARENT
from jobs.spawned import APART, judge_apart, judge_connected

# Programs of tests/c, one of each kind.
SAMPLE = ["pt2pt_order", "pt2pt_wildcard", "coll_move", "rma_move", "rma_locks", "sessions"]
FIRST = ["pt2pt_order", "coll_move", "coll_hosts"]
# Files visible on all hosts: every form of access, also by shared pointers.
FILES = ["file_basic", "file_access"]


# Requests of ranks to the launcher while they run.
DYNAMIC = ["port_basic", "spawn_basic"]


def _meets(session, engine):
    """Ranks of two hosts are one job; each rank exists once."""
    return _judge_four(run(session, engine, 2, [session.binary("world")]))


def _judge_four(outcome):
    """Checks the output of a job of four ranks on two hosts."""
    wanted = [f"rank {rank} of 4" for rank in range(4)]
    if sorted(re.findall(r"rank \d of \d", outcome.out)) != wanted:
        return f"ranks: {outcome.problem() or sorted(set(outcome.out.splitlines()))}", outcome.text()
    if (found := sorted(re.findall(r"host (\S+)", outcome.out))) != ["h1", "h1", "h2", "h2"]:
        return f"hosts: {outcome.problem() or found}", outcome.text()
    return outcome.problem(), outcome.text()


def _several(session, engine):
    """Programs with a `:` between them are one job on the hosts, for every engine."""
    world = session.binary("world")
    return _judge_four(run(session, engine, 2, ["-n", "3", world, ":", "-n", "1", world]))


def _lengths(session, engine):
    """One rank passes a different length: with each algorithm between hosts, a rank reports it and no rank hangs.
    Without a named algorithm the ranks may choose different ones (docs/scale.md)."""
    words = [session.binary("coll_errors")]
    for way in ("allgather:nodes,allgatherv:nodes,bcast:nodes,reduce:nodes,allreduce:nodes",
                "allgather:bruck,allgatherv:bruck,bcast:binomial,reduce:binomial,allreduce:doubling",
                "allgather:ring,allgatherv:ring,bcast:scatter-allgather"):
        outcome = run(session, engine, 2, ["env", f"FASTPATH_COLL={way}", *words])
        if problem := outcome.problem():
            return f"{way}: {problem}", outcome.text()
    return None


def _lacks(session, engine):
    """A host without the program, or without our launcher, ends the job. It is named if any process of ours runs
    there."""
    folder = os.path.join(engine.hosts.folder, "only")
    copy, prefix = os.path.join(folder, "world"), os.path.join(folder, "prefix")
    os.makedirs(os.path.join(prefix, "bin"))
    shutil.copy(session.binary("world"), copy)
    shutil.copy(os.path.join(session.prefix, "bin", "mpiexec"), os.path.join(prefix, "bin"))
    subprocess.run(engine.hosts.on("h2", ["mount", "-t", "tmpfs", "none", folder]), check=True)
    outcome = run(session, engine, 2, [copy])
    if outcome.code in (None, 0) or outcome.left or "mpiexec: on h2: " not in outcome.err:
        return f"no program there: exit code {outcome.code}", outcome.text()
    engine.prefix = prefix
    outcome = run(session, engine, 2, [session.binary("world")], options=["--timeout", "2"])
    if outcome.code in (None, 0) or outcome.left:
        return f"no mpiexec there: exit code {outcome.code}", outcome.text()
    if isinstance(engine, AgentsHydra) and (outcome.code != 124 or "has started within 2 s" not in outcome.err):
        return "no mpiexec there: it is not reported", outcome.text()
    return None


def _programs(session, engine, names, each=2, without=()):
    for one in program.find():
        if one.name not in names:
            continue
        session.binary(one.name)
        one.compile(session.mpicc, session.build)
        env = [f"{name}={value}" for name, value in {"MPI_TEST_HOSTS": "2", **one.env}.items()]
        for args in one.args:
            if args in without:
                continue
            outcome = run(session, engine, each, ["env", *env, one.binary, *args], 2 * one.timeout)
            if problem := outcome.problem(one.exit, one.quiet):
                return f"{one.name} {args}: {problem}", outcome.text()
    return None


def _unjoined(session, engine):
    """A collective call that a rank in MPI_Finalize has not started ends the job."""
    for how in ("unjoined", "unjoined_send", "unjoined_start"):
        outcome = run(session, engine, 1, [session.binary("fatal"), how], timeout=40)
        if outcome.code in (None, 0) or " is in MPI_Finalize and has not made this call" not in outcome.err:
            return f"{how}: {outcome.problem() or 'exit code 0'}", outcome.text()
    return None


def _ends(session, engine):
    """The end of a rank ends the job on all hosts, from any host."""
    for how in ("kill", "exit", "_exit", "abort", "error"):
        for rank in (0, 1, 3):
            outcome = run(session, engine, 2, [session.binary("ends"), str(rank), how], timeout=20)
            # Sometimes prterun and its daemons stay after the job and its last rank have ended.
            if isinstance(engine, Prrte) and outcome.code is None and not any("/ends" in one for one in outcome.left):
                continue
            if outcome.code in (None, 0) or outcome.left:
                return f"rank {rank} ends by {how}: {outcome.problem() or 'exit code 0'}", outcome.text()
    return None


def _nests(session, engine):
    """A child of a Slurm task is distinguished from the task: no rank runs alone silently, for any remaining
    variables."""
    hydra, prrte, world = engines.Hydra(), engines.Prrte(), session.binary("world")
    ours = [os.path.join(session.prefix, "bin", "mpiexec"), "-n", "2", world]
    inner = {
        "our mpiexec": ours,
        "Hydra": [hydra.mpiexec, "-rmk", "user", "-launcher", "fork", "-n", "2", world],
        "PRRTE": ["env", *prrte.moved(), prrte.prterun, "--allow-run-as-root",
                  "--prtemca", "plm", "ssh", "--prtemca", "ras", "^slurm",
                  "--map-by", ":OVERSUBSCRIBE", "-n", "2", world],
        # Ranks of Slurm that start a job of ours.
        "our mpiexec in a rank": [sys.executable, "-c", PARENT, os.path.join(session.prefix, "lib", "libmpi_abi.so.1"),
                                  *ours],
    }
    for what, words in inner.items():
        outcome = run(session, engine, 1, words)
        # Sometimes SIGPIPE ends Hydra itself, when it prints at the end of its job.
        if what == "Hydra" and outcome.code == 128 + signal.SIGPIPE:
            outcome = run(session, engine, 1, words)
        found = sorted(re.findall(r"rank \d of \d", outcome.out))
        wanted = ["rank 0 of 2", "rank 1 of 2"] * 2
        # The last line of each job only.
        if what == "our mpiexec in a rank":
            found, wanted = [one[-1] for one in found], ["2", "2"]
        if outcome.problem() or found != sorted(wanted):
            return f"{what}: {outcome.problem() or found}", outcome.text()
    return None


def _allocation(session, engine):
    """In an allocation of several nodes, `mpiexec` needs no list of hosts."""
    words = ["salloc", "-Q", "-N", "2", "-n", "4", "--overcommit", os.path.join(session.prefix, "bin", "mpiexec"),
             session.binary("world")]
    return _judge_four(run_words(session, engine.hosts.on("h0", ["env", f"SLURM_CONF={engine.conf}", *words])))


def case_kubernetes(session):
    """`mpiexec` needs no list of hosts if Kubernetes' MPI operator passes the hosts to Hydra."""
    if reason := lacks_hosts():
        return session.skip("hosts.kubernetes", reason)
    with Hosts(3) as hosts:
        file = os.path.join(hosts.folder, "hostfile")
        with open(file, "w", encoding="ascii") as to:
            to.write("h1:2\nh2:2\n")
        folder = os.path.dirname(engines.Hydra().mpiexec)
        env = [f"PATH={folder}:{os.environ['PATH']}", f"HYDRA_HOST_FILE={file}", "HYDRA_LAUNCHER=ssh",
               f"HYDRA_LAUNCHER_EXEC={hosts.rsh}"]
        words = ["env", *env, os.path.join(session.prefix, "bin", "mpiexec"), session.binary("world")]
        return _judge_four(run_words(session, hosts.beside("h0", words)))


def _dynamic(session, engine):
    """Service names, ports and spawned processes, between hosts and on both of them."""
    outcome = run(session, engine, 2, [session.binary("spawn_hosts")])
    if problem := outcome.problem():
        return problem, outcome.text()
    # More processes are spawned in total than each host has capacity for at a time.
    outcome = run(session, engine, 1, [session.binary("spawn_bound"), "12", "well"], env={"FASTPATH_SPAWN_MAX": "3"})
    if problem := outcome.problem():
        return f"again: {problem}", outcome.text()
    outcome = run(session, engine, 1, [session.binary("spawn_bound"), "0", "each"], env={"FASTPATH_SPAWN_MAX": "1"})
    if problem := outcome.problem():
        return f"each: {problem}", outcome.text()
    return _programs(session, engine, DYNAMIC)


def _dynamic_directly(session, engine):
    """Service names and spawned processes of programs that an engine has started without our mpiexec."""
    # On several hosts prterun sometimes hangs if a job that it has spawned ends at once.
    ends = [] if isinstance(engine, Prrte) else ["ends"]
    outcome = run(session, engine, 2, [session.binary("spawn_direct"), "names", "spawns", "multiple", *ends])
    return outcome.problem(), outcome.text()


def _checksum(file):
    return subprocess.run(["cksum"], stdin=file, capture_output=True, text=True, check=True).stdout.strip()


def _input(session, engine):
    """Standard input reaches its reader completely, on every host."""
    # Hydra ends a job if more input than a pipe holds waits for its reader. prterun of Open MPI 5.0.11 passes on
    # neither the end of its input nor, to other hosts, input beyond some KiB.
    size = {AgentsHydra: 60_000, AgentsPrrte: 1000}.get(type(engine), 1_000_003)
    read = f"head -c {size} | " if isinstance(engine, AgentsPrrte) else ""
    with tempfile.TemporaryFile() as file:
        file.write(os.urandom(size))
        file.seek(0)
        whole, nothing = (_checksum(of) for of in (file, subprocess.DEVNULL))
        for who, readers in (("all", {0, 1, 2, 3}), ("1,2", {1, 2}), ("3", {3}), ("none", set())):
            file.seek(0)
            words = ["sh", "-c", f"echo $({read}cksum) of $FASTPATH_RANK"]
            outcome = run(session, engine, 2, words, options=["--stdin", who], stdin=file)
            found = {int(rank): told for told, rank in re.findall(r"(\d+ \d+) of (\d)", outcome.out)}
            if problem := outcome.problem():
                return f"--stdin {who}: {problem}", outcome.text()
            if found != {rank: whole if rank in readers else nothing for rank in range(4)}:
                return f"--stdin {who}: {found}, whole: {whole}", outcome.text()
    return None


def _ends_spawned(session, engine):
    """A spawned process that fails ends the job on all hosts, from any host."""
    for how in ("abort", "dies", "fails", "leaves", "silent"):
        outcome = run(session, engine, 1, [session.binary("spawn_ends"), how], timeout=30)
        if outcome.code in (None, 0) or outcome.left:
            return f"{how}: {outcome.problem() or 'exit code 0'}", outcome.text()
    return None


def _apart(session, engine):
    """A failure ends the worlds that are connected with its own, on all hosts, and no others."""
    parents, children = ([f"{who} {rank} goes on" for rank in (0, 1)] for who in ("parent", "child"))
    ways = [(how, "none", parents) for how in APART] + [(how, "parents", children) for how in APART]
    ways += [("dies", "two", [*children, *parents]), *(("exits", link, None) for link in ("inter", "window"))]
    # The second rank is on the host whose agent is not the first.
    for (how, link, goes_on), rank in itertools.product(ways, "01"):
        path = os.path.join(engine.hosts.folder, f"{how}_{link}_{rank}")
        os.mkfifo(path)
        outcome = run(session, engine, 1, [session.binary("spawn_worlds"), how, link, path, rank], timeout=30)
        # Slurm with PMI-1 returns its own code, or that of an agent which it ends.
        if isinstance(engine, AgentsSlurm) and outcome.code in (137, 143):
            outcome.code = APART[how][0]
        problem = judge_apart(outcome, how, goes_on) if goes_on else judge_connected(outcome)
        if problem:
            return f"{how} {link}, rank {rank}: {problem}", outcome.text()
    return None


def _engine_killed(session, engine):
    """The engine's daemons, which end the ranks, are killed: the ranks end too. Messages of the agents have no
    reader any more."""
    begun = os.path.join(engine.hosts.folder, "begun")
    os.mkfifo(begun)
    running = session.start(engine.on_hosts(1, [session.binary("waits"), begun]), timeout=60)
    if not await_word(running, begun):
        return "it does not begin", running.finish().text()
    daemons = [pid for pid, command in running.processes() if command.split()[0].endswith(engine.daemon)]
    # The youngest first: srun has a second process, which would end the job after the first one.
    for pid in sorted(daemons, reverse=True):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    # The behavior of an engine without its daemons is not tested.
    running.process.kill()
    running.process.wait()
    is_gone = running.wait_gone(20)
    outcome = running.finish()
    return None if daemons and is_gone else (f"daemons {daemons}, left: {outcome.left}", outcome.text())


def _starter_killed(session, engine):
    """The daemons of an engine that has started the ranks directly are killed: the ranks end with their parents. A
    shell that sets similar variables may be in between."""
    begun = os.path.join(engine.hosts.folder, "begun")
    os.mkfifo(begun)
    words = ["sh", "-c", ADD + AND_START, "sh", session.binary("waits"), begun]
    running = session.start(engine.on_hosts(1, words), timeout=60)
    if not await_word(running, begun):
        return "it does not begin", running.finish().text()
    shells = [pid for pid, command in running.processes() if re.match(r"(/\S*/)?sh -c .*/waits ", command)]
    starters = {processes.parent(pid) for pid in shells if processes.parent(pid) not in shells}
    for pid in starters:
        os.kill(pid, signal.SIGKILL)
    running.process.kill()
    running.process.wait()
    # Remaining processes of the engine itself are not tested.
    is_gone = running.wait_gone(20, lambda pid: processes.words(pid)[0] != session.binary("waits"))
    outcome = running.finish()
    return None if len(starters) == 2 and is_gone else (f"starters {starters}, left: {outcome.left}", outcome.text())


@sliced
def case_two_jobs(session):
    """Two concurrent jobs of one user on the same hosts, directly and through agents, do not mix."""
    if reason := lacks_hosts():
        return session.skip("hosts.two_jobs", reason)
    with Hosts(3) as hosts:
        ways = [Hydra(hosts), AgentsHydra(hosts)] * 2
        for way in ways:
            way.prefix = session.prefix
        words = [session.binary("traffic"), "5", "200"]
        running = [session.start(way.on_hosts(2, words), timeout=60) for way in ways]
        for one in running:
            one.await_end(30)
            outcome = one.finish()
            if problem := outcome.problem():
                return problem, outcome.text()
    return None


def case_connected(session):
    """Two jobs, each on two hosts, one through agents and one directly, are connected with each other."""
    if reason := lacks_hosts():
        return session.skip("hosts.connected", reason)
    folder = tempfile.mkdtemp(prefix="mpi-connected-")
    with Hosts(3) as hosts:
        ways = [AgentsHydra(hosts), Hydra(hosts)]
        words = [session.binary("two_jobs"), os.path.join(folder, "name"), "all", "2"]
        running = []
        for way, side, each in zip(ways, ("serve", "call"), (2, 1)):
            way.prefix = session.prefix
            running.append(session.start(way.on_hosts(each, [words[0], side, *words[1:]]), timeout=60))
        for one in running:
            one.await_end(30)
        outcomes = [one.finish() for one in running]
    shutil.rmtree(folder, ignore_errors=True)
    for outcome in outcomes:
        if problem := outcome.problem():
            return problem, "".join(one.text() for one in outcomes)
    return None


def _make(check, kind, *arguments, hosts=3):
    def case(session):
        name = f"hosts.{kind.__name__.lower()}"
        if reason := missing():
            session.skip(name, f"virtual hosts are not possible: {reason}")
            return None
        try:
            if issubclass(kind, engines.Slurm):
                engines.lay_slurm()
        except OSError as error:
            session.skip(name, error)
            return None
        with Hosts(hosts) as made:
            try:
                engine = kind(made)
                engine.prefix = session.prefix
            except OSError as error:
                session.skip(name, error)
                return None
            return check(session, engine, *arguments)
    return case


# Short runs cover all cases of the most common launcher, directly and through our agents, and those cases of Slurm that
# differ most between launchers. PRRTE sometimes fails by itself (exit code 213, a hang when no rank is left), so only a
# basic job runs under it.
SHORT = [Hydra, AgentsHydra]
# Cases of each engine, or of one, that run with every change; the others run in their slice.
EVERY_CHANGE = {"meets", "nests", (AgentsHydra, "programs"), (AgentsHydra, "ends"), (Hydra, "ends")}
DIFFERS = {"meets", "ends", "nests"}


def _is_long(kind, what):
    if kind in SHORT:
        return what == "sample"
    return what not in ({"meets"} if issubclass(kind, (Prrte, AgentsPrrte)) else DIFFERS)


for _kind in ENGINES:
    _name = _kind.__name__.lower()
    _cases = {
        "meets": _make(_meets, _kind),
        "programs": _make(_programs, _kind, FIRST),
        "ends": _make(_ends, _kind),
        "sample": _make(_programs, _kind, SAMPLE),
    }
    if issubclass(_kind, Agents):
        _cases["several"] = _make(_several, _kind)
        _cases["lacks"] = _make(_lacks, _kind)
        _cases["input"] = _make(_input, _kind)
        _cases["dynamic"] = _make(_dynamic, _kind)
        _cases["apart"] = _make(_apart, _kind)
        _cases["ends_spawned"] = _make(_ends_spawned, _kind)
        _cases["engine_killed"] = _make(_engine_killed, _kind)
        if _kind is AgentsSlurm:
            _cases["allocation"] = _make(_allocation, _kind)
    else:
        _cases["starter_killed"] = _make(_starter_killed, _kind)
    if _kind in (Hydra, Prrte):
        _cases["dynamic"] = _make(_dynamic_directly, _kind)
    elif _kind in (SlurmPmi2, SlurmPmix):
        _cases["nests"] = _make(_nests, _kind)
    for _what, _case in _cases.items():
        _case.long = _is_long(_kind, _what)
        _case.sliced = _what not in EVERY_CHANGE and (_kind, _what) not in EVERY_CHANGE
        _case.needs = {"processors": int(_what != "ends")}
        globals()[f"case_{_name}_{_what}"] = _case


def case_version_6(session):
    """Hosts with IPv6 addresses only. Hydra's own processes cannot reach each other there."""
    if reason := missing():
        return session.skip("hosts.version_6", f"virtual hosts are not possible: {reason}")
    try:
        engines.Prrte()
    except OSError as error:
        return session.skip("hosts.version_6", error)
    with Hosts(3, version=6) as hosts:
        for kind in (Prrte, AgentsPrrte):
            engine = kind(hosts)
            engine.prefix = session.prefix
            if (judged := _meets(session, engine))[0]:
                return judged
    return None


# PRRTE sometimes fails by itself.
case_version_6.long = True


# A rank on each host: progress while one computes is over the network. Even without the thread the network accepts
# messages of 64 KiB, so that case is for ranks of one host.
PROGRESS = ["progress_thread", "coll_progress"]
case_progress = _make(_programs, AgentsHydra, PROGRESS, 1, [["without"]])

case_lengths = _make(_lengths, AgentsHydra)

# A rank on each host, without earlier messages: a rank that has finalized is detected, a late one is awaited.
# MPI_Finalize waits for a collective call that another rank enters late; one that a rank there has not started is an
# error.
LEAVING = ["pt2pt_finished", "pt2pt_late", "coll_joined_late"]
case_leaving = _make(_programs, AgentsHydra, LEAVING, 1)
case_unjoined = _make(_unjoined, AgentsHydra)
case_leaving_directly = _make(_programs, Hydra, LEAVING, 1, hosts=4)

# Three hosts with ranks, and one shared mount.
case_files_on_three = _make(_programs, AgentsHydra, FILES, hosts=4)
case_files_on_three.long = False
case_files_together_on_three = _make(_programs, AgentsHydra, ["file_together"], hosts=4)
case_files_together_on_three.long = True

case_leaving_directly.sliced = case_progress.sliced = case_files_on_three.sliced = True
