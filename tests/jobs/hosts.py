"""Jobs on several virtual hosts, started by the launchers that people have. Needs root, for the hosts."""

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from harness import engines, foreign, program
from harness.hosts import Hosts, missing
from harness.job import await_word
from jobs.engines import ADD, AND_START, PARENT
from jobs.spawned import APART, judge_apart, judge_connected
from jobs.verdicts import _await_ready

# Of tests/c: something of each kind.
SAMPLE = ["pt2pt_order", "pt2pt_wildcard", "coll_move", "rma_move", "rma_locks", "sessions"]
FIRST = ["pt2pt_order", "coll_move", "coll_hosts"]
# Files that all hosts see: every way of access, shared pointers among them.
FILES = ["file_basic", "file_access"]


# What ranks ask the launcher while they run.
DYNAMIC = ["port_basic", "spawn_basic"]


class Hydra(engines.Hydra):
    def __init__(self, hosts):
        super().__init__()
        self.hosts = hosts

    def on_hosts(self, each, words):
        return self.start_on(self.hosts, self.hosts.names[1:], each, words)


class Prrte(engines.Prrte):
    def __init__(self, hosts):
        super().__init__()
        self.hosts = hosts

    def on_hosts(self, each, words):
        return self.start_on(self.hosts, self.hosts.names[1:], each, words)


class SlurmPmi2(engines.Slurm):
    name, mpi = "slurm-pmi2", "pmi2"

    def on_hosts(self, each, words):
        nodes = len(self.hosts.names) - 1
        return self.start_on(self.mpi, nodes, nodes * each, words, [f"--ntasks-per-node={each}", "--overcommit"])


class SlurmPmix(SlurmPmi2):
    name, mpi = "slurm-pmix", "pmix"


class Agents:
    """Our own mpiexec, which has an engine start an agent of ours on each host."""
    prefix = None  # of the installation
    daemon = None  # what the engine starts for a job, and cannot do without

    def mpiexec(self, engine, each, options, words):
        places = ",".join(f"{name}:{each}" for name in self.hosts.names[1:])
        return [os.path.join(self.prefix, "bin", "mpiexec"), "--engine", engine, *options, "--host", places, *words]


class AgentsHydra(Agents):
    name, daemon = "agents-hydra", "hydra_pmi_proxy"

    def __init__(self, hosts):
        self.hosts, self.folder = hosts, os.path.dirname(engines.Hydra().mpiexec)

    def on_hosts(self, each, words):
        options = ["-launcher", "ssh", "-launcher-exec", self.hosts.rsh]
        command = self.mpiexec("hydra", each, options, words)
        return self.hosts.beside("h0", ["env", f"PATH={self.folder}:{os.environ['PATH']}", *command])


class AgentsPrrte(Agents):
    name, daemon = "agents-prrte", "prted"

    def __init__(self, hosts):
        self.hosts, self.prrte = hosts, engines.Prrte()

    def on_hosts(self, each, words):
        moved = [*self.prrte.moved(), f"PRTE_MCA_plm_ssh_agent={self.hosts.rsh}",
                 "PRTE_MCA_plm_ssh_no_tree_spawn=1"]
        path = f"PATH={self.prrte.place}/bin:{os.environ['PATH']}"
        return self.hosts.beside("h0", ["env", *moved, path, *self.mpiexec("prrte", each, [], words)])


class AgentsSlurm(engines.Slurm, Agents):
    # Its daemons live on, and notice nothing.
    name, daemon = "agents-slurm", "srun"

    def on_hosts(self, each, words):
        command = self.mpiexec("slurm", each, [], words)
        return self.hosts.on("h0", ["env", f"SLURM_CONF={self.conf}", *command])


ENGINES = [Hydra, Prrte, SlurmPmi2, SlurmPmix, AgentsHydra, AgentsPrrte, AgentsSlurm]


def _run(session, engine, each, words, timeout=60, options=(), **more):
    """`options` are those of our mpiexec."""
    command = engine.on_hosts(each, words)
    if options:
        at = command.index("--host")
        command[at:at] = options
    return _run_words(session, command, timeout, **more)


def _run_words(session, command, timeout=60, **more):
    running = session.start(command, timeout=timeout, **more)
    running.await_end(10)
    outcome = running.finish()
    outcome.err = foreign.remove(outcome.err)
    return outcome


def _meets(session, engine):
    """Ranks of two hosts are one job, each once."""
    return _judge_four(_run(session, engine, 2, [session.binary("world")]))


def _judge_four(outcome):
    """A job of four ranks on two hosts, who say so."""
    wanted = [f"rank {rank} of 4" for rank in range(4)]
    if sorted(re.findall(r"rank \d of \d", outcome.out)) != wanted:
        return f"ranks: {outcome.problem() or sorted(set(outcome.out.splitlines()))}", outcome.text()
    if (found := sorted(re.findall(r"host (\S+)", outcome.out))) != ["h1", "h1", "h2", "h2"]:
        return f"hosts: {outcome.problem() or found}", outcome.text()
    return outcome.problem(), outcome.text()


def _several(session, engine):
    """Programs with a `:` between them are one job on the hosts, whatever the engine makes of such a word."""
    world = session.binary("world")
    return _judge_four(_run(session, engine, 2, ["-n", "3", world, ":", "-n", "1", world]))


def _lengths(session, engine):
    """One rank passes another length than the others: by each way that the call can go between hosts, some rank says so
    and nobody waits for ever. Without a name the ranks may choose different ways (docs/scale.md)."""
    words = [session.binary("coll_errors")]
    for way in ("allgather:nodes,allgatherv:nodes,bcast:nodes,reduce:nodes,allreduce:nodes",
                "allgather:bruck,allgatherv:bruck,bcast:binomial,reduce:binomial,allreduce:doubling",
                "allgather:ring,allgatherv:ring,bcast:scatter-allgather"):
        outcome = _run(session, engine, 2, ["env", f"FASTPATH_COLL={way}", *words])
        if problem := outcome.problem():
            return f"{way}: {problem}", outcome.text()
    return None


def _lacks(session, engine):
    """A host that lacks the program, or our launcher, ends the job, and is named where anything of ours runs there."""
    folder = os.path.join(engine.hosts.folder, "only")
    copy, prefix = os.path.join(folder, "world"), os.path.join(folder, "prefix")
    os.makedirs(os.path.join(prefix, "bin"))
    shutil.copy(session.binary("world"), copy)
    shutil.copy(os.path.join(session.prefix, "bin", "mpiexec"), os.path.join(prefix, "bin"))
    subprocess.run(engine.hosts.on("h2", ["mount", "-t", "tmpfs", "none", folder]), check=True)
    outcome = _run(session, engine, 2, [copy])
    if outcome.code in (None, 0) or outcome.left or "mpiexec: on h2: " not in outcome.err:
        return f"no program there: exit code {outcome.code}", outcome.text()
    engine.prefix = prefix
    outcome = _run(session, engine, 2, [session.binary("world")], options=["--timeout", "2"])
    if outcome.code in (None, 0) or outcome.left:
        return f"no mpiexec there: exit code {outcome.code}", outcome.text()
    if isinstance(engine, AgentsHydra) and (outcome.code != 124 or "have not started within 2 s" not in outcome.err):
        return "no mpiexec there: it is not told", outcome.text()
    return None


def _programs(session, engine, names, each=2, without=()):
    for one in program.find(os.path.join(os.path.dirname(__file__), "..", "c")):
        if one.name not in names:
            continue
        session.binary(one.name)
        one.compile(session.mpicc, session.build)
        env = [f"{name}={value}" for name, value in {"MPI_TEST_HOSTS": "2", **one.env}.items()]
        for args in one.args:
            if args in without:
                continue
            outcome = _run(session, engine, each, ["env", *env, one.binary, *args], 2 * one.timeout)
            if problem := outcome.problem(one.exit, one.quiet):
                return f"{one.name} {args}: {problem}", outcome.text()
    return None


def _unjoined(session, engine):
    """A collective call that another rank in MPI_Finalize has not begun ends the job."""
    for how in ("unjoined", "unjoined_send", "unjoined_start"):
        outcome = _run(session, engine, 1, [session.binary("fatal"), how], timeout=40)
        if outcome.code in (None, 0) or " is in MPI_Finalize, too, and has not begun it" not in outcome.err:
            return f"{how}: {outcome.problem() or 'exit code 0'}", outcome.text()
    return None


def _ends(session, engine):
    """Wherever a rank ends, the job ends on all hosts."""
    for how in ("kill", "exit", "_exit", "abort", "error"):
        for rank in (0, 1, 3):
            outcome = _run(session, engine, 2, [session.binary("ends"), str(rank), how], timeout=20)
            # Now and then prterun and its daemons stay when the job is over and its last rank gone.
            if isinstance(engine, Prrte) and outcome.code is None and not any("/ends" in one for one in outcome.left):
                continue
            if outcome.code in (None, 0) or outcome.left:
                return f"rank {rank} ends by {how}: {outcome.problem() or 'exit code 0'}", outcome.text()
    return None


def _nests(session, engine):
    """What a task of Slurm starts in its turn is told from it: no rank is silently alone, whatever variables are left."""
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
        outcome = _run(session, engine, 1, words)
        # Hydra by itself is sometimes ended by a signal for what it writes when its job is over (SIGPIPE).
        if what == "Hydra" and outcome.code == 128 + signal.SIGPIPE:
            outcome = _run(session, engine, 1, words)
        found = sorted(re.findall(r"rank \d of \d", outcome.out))
        wanted = ["rank 0 of 2", "rank 1 of 2"] * 2
        # The last line of each job alone.
        if what == "our mpiexec in a rank":
            found, wanted = [one[-1] for one in found], ["2", "2"]
        if outcome.problem() or found != sorted(wanted):
            return f"{what}: {outcome.problem() or found}", outcome.text()
    return None


def _allocation(session, engine):
    """In an allocation of several nodes `mpiexec` needs no hosts."""
    words = ["salloc", "-Q", "-N", "2", "-n", "4", "--overcommit", os.path.join(session.prefix, "bin", "mpiexec"),
             session.binary("world")]
    return _judge_four(_run_words(session, engine.hosts.on("h0", ["env", f"SLURM_CONF={engine.conf}", *words])))


def case_kubernetes(session):
    """So it does where Kubernetes' MPI operator tells the hosts of Hydra."""
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
        return _judge_four(_run_words(session, hosts.beside("h0", words)))


def _dynamic(session, engine):
    """Names of services, ports and spawned processes, between hosts and on both of them."""
    outcome = _run(session, engine, 2, [session.binary("spawn_hosts")])
    if problem := outcome.problem():
        return problem, outcome.text()
    return _programs(session, engine, DYNAMIC)


def _dynamic_directly(session, engine):
    """The same of programs that an engine has started without our mpiexec: it keeps names and starts processes."""
    # On several hosts prterun sometimes stays for ever where a job that it has spawned ends at once.
    ends = [] if isinstance(engine, Prrte) else ["ends"]
    outcome = _run(session, engine, 2, [session.binary("spawn_direct"), "names", "spawns", "multiple", *ends])
    return outcome.problem(), outcome.text()


def _allow(job, fifo):
    """Lets go whoever reads a fifo to its end, once there is somebody or the job is over."""
    while job.process.poll() is None:
        try:
            return os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            time.sleep(0.01)


def _signal_all(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _has_caller(hosts, name):
    """Whether a connection waits on a host that no process has accepted."""
    rows = []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{hosts.pids[name]}/net/{table}", encoding="ascii") as file:
            rows += [line.split() for line in file.readlines()[1:]]
    return any(row[3] == "01" and row[9] == "0" for row in rows)


def case_silent_agent(session):
    """The agent of one host is stopped while a rank spawns processes there: the first agent serves the others
    meanwhile. When that one goes on, so does the spawn."""
    if reason := lacks_hosts():
        return session.skip("hosts.silent_agent", reason)
    with Hosts(4) as hosts:
        way = AgentsHydra(hosts)
        way.prefix = session.prefix
        begun, may_spawn, may_ask, answered = fifos = [os.path.join(hosts.folder, what) for what in "abcd"]
        for path in fifos:
            os.mkfifo(path)
        running = session.start(way.on_hosts(1, [session.binary("spawn_beside"), *fifos, "h2"]), timeout=60)
        agents, said = [], ""
        if await_word(running, begun):
            agents = [pid for pid, command in running.processes() if hosts.has("h2", pid) and " --agent " in command]
            # A job that fails does not end as long as they are stopped.
            limit = threading.Timer(30, _signal_all, (agents, signal.SIGCONT))
            limit.start()
            _signal_all(agents, signal.SIGSTOP)
            _allow(running, may_spawn)
            # The first agent calls that one; the kernel has taken the call.
            while running.process.poll() is None and not _has_caller(hosts, "h2"):
                time.sleep(0.01)
            _allow(running, may_ask)
            said = await_word(running, answered)
            limit.cancel()
            _signal_all(agents, signal.SIGCONT)
        running.await_end(10)
        outcome = running.finish()
    return outcome.problem() or (None if agents and said else f"agents {agents}, said {said!r}"), outcome.text()


def _checksum(file):
    return subprocess.run(["cksum"], stdin=file, capture_output=True, text=True, check=True).stdout.strip()


def _input(session, engine):
    """Standard input reaches whoever reads it, on every host, whole."""
    # Hydra ends a job of which more than a pipe holds waits for its reader. prterun of Open MPI 5.0.11 by itself passes
    # neither the end of its input nor, to other hosts, what goes beyond some KiB.
    size = {AgentsHydra: 60_000, AgentsPrrte: 1000}.get(type(engine), 1_000_003)
    read = f"head -c {size} | " if isinstance(engine, AgentsPrrte) else ""
    with tempfile.TemporaryFile() as file:
        file.write(os.urandom(size))
        file.seek(0)
        whole, nothing = (_checksum(of) for of in (file, subprocess.DEVNULL))
        for who, readers in (("all", {0, 1, 2, 3}), ("1,2", {1, 2}), ("3", {3}), ("none", set())):
            file.seek(0)
            words = ["sh", "-c", f"echo $({read}cksum) of $FASTPATH_RANK"]
            outcome = _run(session, engine, 2, words, options=["--stdin", who], stdin=file)
            found = {int(rank): told for told, rank in re.findall(r"(\d+ \d+) of (\d)", outcome.out)}
            if problem := outcome.problem():
                return f"--stdin {who}: {problem}", outcome.text()
            if found != {rank: whole if rank in readers else nothing for rank in range(4)}:
                return f"--stdin {who}: {found}, whole: {whole}", outcome.text()
    return None


@contextlib.contextmanager
def _agents(session):
    """Three virtual hosts, and our mpiexec with Hydra as its engine on the first one."""
    with Hosts(3) as hosts:
        way = AgentsHydra(hosts)
        way.prefix = session.prefix
        yield hosts, way


def case_input_that_pauses(session):
    """A rank that fails while standard input is silent ends the job, on whichever host it is."""
    if reason := lacks_hosts():
        return session.skip("hosts.input_that_pauses", reason)
    with _agents(session) as (_, way):
        program = ["sh", "-c", "test $FASTPATH_RANK = 3 && sleep 1 && exit 3; cat > /dev/null"]
        command = way.on_hosts(2, program)
        at = command.index("--host")
        command[at:at] = ["--stdin", "all"]
        reader, writer = os.pipe()
        running = session.start(command, stdin=reader, timeout=20)
        # In pieces, as somebody types.
        for _ in range(10):
            os.write(writer, bytes(3000))
            time.sleep(0.02)
        running.await_end(10)
        outcome = running.finish()
        os.close(reader)
        os.close(writer)
    told = None if "rank 3 " in outcome.err else "rank 3 is not named"
    return outcome.problem(3, quiet=False) or told, outcome.text()


def _ends_spawned(session, engine):
    """A spawned process that fails ends the job on all hosts, whichever host it is on."""
    for how in ("abort", "dies", "fails", "leaves", "silent"):
        outcome = _run(session, engine, 1, [session.binary("spawn_ends"), how], timeout=30)
        if outcome.code in (None, 0) or outcome.left:
            return f"{how}: {outcome.problem() or 'exit code 0'}", outcome.text()
    return None


def _apart(session, engine):
    """A failure ends the worlds that are connected with its own, on all hosts, and no others."""
    parents, children = ([f"{who} {rank} goes on" for rank in (0, 1)] for who in ("parent", "child"))
    ways = [(how, "none", parents) for how in APART] + [(how, "parents", children) for how in APART]
    ways += [("dies", "two", [*children, *parents]), *(("exits", link, None) for link in ("inter", "window"))]
    # The second one is of the host whose agent is not the first.
    for (how, link, goes_on), rank in itertools.product(ways, "01"):
        path = os.path.join(engine.hosts.folder, f"{how}_{link}_{rank}")
        os.mkfifo(path)
        outcome = _run(session, engine, 1, [session.binary("spawn_worlds"), how, link, path, rank], timeout=30)
        # Slurm by PMI-1 has a code of its own, or that of an agent which it ends.
        if isinstance(engine, AgentsSlurm) and outcome.code in (137, 143):
            outcome.code = APART[how][0]
        problem = judge_apart(outcome, how, goes_on) if goes_on else judge_connected(outcome)
        if problem:
            return f"{how} {link}, rank {rank}: {problem}", outcome.text()
    return None


def _engine_killed(session, engine):
    """Who kills the engine's daemons, and so nobody is left who could end the ranks, ends these too. What the agents say
    of it has no reader any more."""
    begun = os.path.join(engine.hosts.folder, "begun")
    os.mkfifo(begun)
    running = session.start(engine.on_hosts(1, [session.binary("waits"), begun]), timeout=60)
    if not await_word(running, begun):
        return "it does not begin", running.finish().text()
    daemons = [pid for pid, command in running.processes() if command.split()[0].endswith(engine.daemon)]
    # The youngest first: srun has a second process, which would end the job when it finds that the first one is gone.
    for pid in sorted(daemons, reverse=True):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    # What an engine does without its daemons is its own affair.
    running.process.kill()
    running.process.wait()
    is_gone = running.wait_gone(20)
    outcome = running.finish()
    return None if daemons and is_gone else (f"daemons {daemons}, left: {outcome.left}", outcome.text())


def _parent(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def _starter_killed(session, engine):
    """The same of ranks that an engine has started directly: they end with the processes that have started them. A shell
    that sets variables like theirs may stand in between."""
    begun = os.path.join(engine.hosts.folder, "begun")
    os.mkfifo(begun)
    words = ["sh", "-c", ADD + AND_START, "sh", session.binary("waits"), begun]
    running = session.start(engine.on_hosts(1, words), timeout=60)
    if not await_word(running, begun):
        return "it does not begin", running.finish().text()
    shells = [pid for pid, command in running.processes() if re.match(r"(/\S*/)?sh -c .*/waits ", command)]
    starters = {_parent(pid) for pid in shells if _parent(pid) not in shells}
    for pid in starters:
        os.kill(pid, signal.SIGKILL)
    running.process.kill()
    running.process.wait()
    # What is left of the engine itself is its own affair.
    is_gone = running.wait_gone(20, lambda pid: not _runs(pid, session.binary("waits")))
    outcome = running.finish()
    return None if len(starters) == 2 and is_gone else (f"starters {starters}, left: {outcome.left}", outcome.text())


def _runs(pid, program):
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            return file.read().split("\0")[0] == program
    except OSError:
        return False  # it has just ended


def _use_tool(session, hosts, words, env):
    """A command of `fastpath` about h1 and h2; its outcome."""
    tool = os.path.join(session.prefix, "bin", "fastpath")
    folder = os.path.dirname(engines.Hydra().mpiexec)
    reach = [f"--mpiexec-arg={word}" for word in ("-launcher", "ssh", "-launcher-exec", hosts.rsh)]
    cache = os.path.join(session.build, "cache")  # of the benchmark program, as in bench.py
    set_ = [f"PATH={folder}:{os.environ['PATH']}", f"XDG_CACHE_HOME={cache}", *(f"{name}={value}" for name, value in env.items())]
    command = ["env", *set_, tool, *words, *reach, "--host", "h1,h2"]
    running = session.start(hosts.beside("h0", command), timeout=120)
    running.await_end(10)
    return running.finish()


def _judge(outcome, code, texts):
    """What is wrong with a report in JSON; and the report."""
    if problem := outcome.problem(code, quiet=False):
        return problem, {}
    report = json.loads(outcome.out)
    said = [trouble["what"] for trouble in report["diagnostics"]]
    if len(said) != len(texts) or not all(any(text in one for one in said) for text in texts):
        return f"it says {said}", report
    return None, report


def lacks_hosts():
    """Why there can be no virtual hosts with Hydra here, or None."""
    if reason := missing():
        return f"no virtual hosts: {reason}"
    try:
        engines.Hydra()
    except OSError as error:
        return error
    return None


def case_bench(session):
    """Messages between two hosts are measured beside a bare socket between the same two."""
    if reason := lacks_hosts():
        return session.skip("hosts.bench", reason)
    with Hosts(3) as hosts:
        words = ["bench", "latency", "bandwidth", "--sizes", "8,64K", "--duration", "20ms", "--no-progress", "--json", "-"]
        outcome = _use_tool(session, hosts, words, {})
        if problem := outcome.problem(quiet=False):
            return problem, outcome.text()
        cases = json.loads(outcome.out)["cases"]
        seen = {(case["test"], case["bytes"]): case.get("floor_of") for case in cases}
        wanted = {("latency", 8): "bare socket", ("latency", 65536): "bare socket",
                  ("bandwidth", 8): "bare socket, stream", ("bandwidth", 65536): "bare socket, stream"}
        counts = [case["floor"]["count"] for case in cases if case.get("floor")]
        if seen != wanted or len(counts) != 4 or min(counts) == 0:
            return f"cases {seen}, samples of the floor {counts}", outcome.text()
    return None


def case_compare(session):
    """Two MPIs are compared on two hosts, beside a bare socket between the same two: each with its own launcher, which
    starts a rank on each of them."""
    if reason := lacks_hosts():
        return session.skip("hosts.compare", reason)
    with Hosts(3) as hosts:
        mpich = os.path.dirname(engines.Hydra().mpiexec)
        peer = ["--peer", f"mpich={mpich}/mpicc,{mpich}/mpiexec.hydra",
                "--peer-arg", f"mpich:-launcher,ssh,-launcher-exec,{hosts.rsh}"]
        words = ["compare", "--tests", "latency", "--sizes", "8", "--rounds", "2", "--iterations", "100", "--no-progress",
                 "--json", "-", *peer]
        outcome = _use_tool(session, hosts, words, {})
    if problem := outcome.problem(quiet=False):
        return problem, outcome.text()
    report = json.loads(outcome.out)
    rows = [(row["peer"], row["test"], row["floor_of"], len(row["pairs"]), len(row["floors"])) for row in report["rows"]]
    if rows != [("mpich", "latency", "bare socket", 2, 2)] or report["missing"]:
        return f"rows {rows}, missing {report['missing']}", outcome.text()
    return None


def case_two_jobs(session):
    """Two jobs of one user at once on the same hosts, directly and through agents, do not take each other for theirs."""
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


def case_frozen_host(session):
    """Everything on a host is stopped, while its kernel answers, as when a job is suspended: who waits for its ranks goes
    on waiting, until `--timeout` ends the job on the other hosts, and names the host of which nobody says anything. Once
    it goes on, it ends too."""
    if reason := lacks_hosts():
        return session.skip("hosts.frozen_host", reason)
    with _agents(session) as (hosts, way):
        begun = os.path.join(hosts.folder, "begun")
        os.mkfifo(begun)
        command = way.on_hosts(1, [session.binary("waits"), begun])
        at = command.index("--host")
        command[at:at] = ["--timeout", "2"]
        running = session.start(command, timeout=30)
        if not await_word(running, begun):
            return "it does not begin", running.finish().text()
        frozen = [pid for pid, _ in running.processes() if hosts.has("h2", pid)]
        if not frozen:
            return "nothing runs on h2", running.finish().text()
        _signal_all(frozen, signal.SIGSTOP)
        # As long as it is frozen, nobody can end what is there.
        is_over = running.wait_gone(30, lambda pid: hosts.has("h2", pid))
        stays = sum(hosts.has("h2", pid) for pid, _ in running.processes())
        _signal_all(frozen, signal.SIGCONT)
        running.await_end(10)
        outcome = running.finish()
    told = "rank 0 (process" in outcome.err and "rank 1 is on another node, h2" in outcome.err
    wrong = None if is_over and told and stays == len(frozen) else f"over: {is_over}, stopped {len(frozen)}, {stays} stay"
    return outcome.problem(124, quiet=False) or wrong, outcome.text()


def _silent_host(session, kind):
    """A host from which nothing comes any more, as if it were frozen: who waits for one of its ranks gives it up, names
    it, and the job ends on the other hosts."""
    if reason := lacks_hosts():
        return session.skip("hosts.silent_host", reason)
    with Hosts(3) as hosts:
        way = kind(hosts)
        way.prefix = session.prefix
        begun = os.path.join(hosts.folder, "begun")
        os.mkfifo(begun)
        running = session.start(way.on_hosts(1, [session.binary("waits"), begun]), timeout=90)
        if not await_word(running, begun):
            return "it does not begin", running.finish().text()
        hosts.cut("h2")
        running.await_end(0)
        # What runs there cannot be told that the job is over. It takes a moment to end with its host.
        is_over = running.wait_gone(60, lambda pid: hosts.has("h2", pid))
        hosts.stop("h2")
        running.wait_gone(20)
        outcome = running.finish()
        if not is_over or outcome.code in (None, 0) or outcome.left or "rank 1 on h2" not in outcome.err:
            return "a silent host", outcome.text()
    return None


def case_silent_host(session):
    return _silent_host(session, AgentsHydra)


def case_silent_host_directly(session):
    return _silent_host(session, Hydra)


case_silent_host_directly.long = True


def case_timeout(session):
    """`--timeout` says of the ranks of each host what they did when the time was up, before the end of others woke them:
    also where the engine starts one host later."""
    if reason := lacks_hosts():
        return session.skip("hosts.timeout", reason)
    with Hosts(3) as hosts:
        late = os.path.join(hosts.folder, "late")
        with open(late, "w", encoding="ascii") as file:
            file.write(f'#!/bin/sh\ncase " $* " in *" h2 "*) sleep 1;; esac\nexec {hosts.rsh} "$@"\n')
        os.chmod(late, 0o755)
        hosts.rsh = late
        way = AgentsHydra(hosts)
        way.prefix = session.prefix
        outcome = _run(session, way, 1, [session.binary("ends"), "0", "waits"], options=["--timeout", "6"])
    found = re.findall(r"rank (\d) \(process \d+\) waits in MPI_Recv, peer (\d)", outcome.err)
    if sorted(found) != [("0", "1"), ("1", "0")] or outcome.code != 124 or outcome.left:
        return f"exit code {outcome.code}, ranks that wait: {found}", outcome.text()
    return None


def case_doctor(session):
    """How two hosts reach each other: every pair of addresses, the connection that a job would use, and what is wrong."""
    if reason := lacks_hosts():
        return session.skip("hosts.doctor", reason)

    def examine(words, env):
        return _use_tool(session, hosts, ["doctor", "--engine", "hydra", *words], env)

    with Hosts(3) as hosts:
        for name in ("h1", "h2"):
            hosts.add_network(name, "docker0", "172.17.0.1/16")
        hosts.add_network("h2", "vpn0", "192.0.2.2/24")
        # A network that leads nowhere: nothing comes back.
        hosts.set_up("h1", "route add 192.0.2.0/24 via 10.77.0.10")
        text = examine([], {})
        if text.problem() or "a job would use" not in text.out or "10.77.0.11 to 10.77.0.12" not in text.out:
            return text.problem() or "the text does not say what a job would use", text.text()
        outcome = examine(["--json"], {})
        problem, report = _judge(outcome, 0, [])
        if problem:
            return problem, outcome.text()
        calls = {(call["from"], call["to"]): call["outcome"] for call in report["tried"][0]}
        wanted = {
            (None, "10.77.0.12"): {"reached"}, ("10.77.0.11", "10.77.0.12"): {"reached"},
            # The answer goes to h2's own bridge.
            ("172.17.0.1", "10.77.0.12"): {"silent"},
            (None, "192.0.2.2"): {"silent"}, ("10.77.0.11", "192.0.2.2"): {"silent"},
            # Its own address: nobody listens there, or it does so itself.
            (None, "172.17.0.1"): {"refused", "stranger"},
        }
        wrong = [pair for pair, outcomes in wanted.items() if calls.get(pair) not in outcomes]
        speed = report["speeds"][0].get("Ok", {})
        if wrong or not speed or min(speed["bandwidth_mb_s"] + speed["half_round_trip_us"]) <= 0:
            return f"calls {wrong}, speed {speed}", outcome.text()
        if speed["path_mtu"] != 1500 or len(report["used"]) != 1:
            return "path MTU or connections", outcome.text()
        hosts.set_up("h2", "link set eth0 mtu 1400")
        ways = [
            ({"FASTPATH_INTERFACES": "vpn0,eth0"}, 0, ["192.0.2.2 does not answer", "packets of 10.77.0.11 have 1500"]),
            ({"FASTPATH_INTERFACES": "docker0"}, 1, ["neither reaches the other"]),
            ({"FASTPATH_INTERFACES": "eth7"}, 1, ["no other host can reach it"] * 2),
        ]
        for env, code, texts in ways:
            outcome = examine(["--json"], env)
            problem, _ = _judge(outcome, code, texts)
            if problem:
                return f"{env}: {problem}", outcome.text()
    return None


def case_doctor_firewall(session):
    """A firewall drops the packets to some ports of a host: `doctor` says so if those are the ones that FASTPATH_PORTS
    allows, and finds no fault with others."""
    if reason := lacks_hosts():
        return session.skip("hosts.doctor_firewall", reason)
    with Hosts(3) as hosts:
        def drop(name):
            # Before the host's own addresses are looked up.
            hosts.set_up(name, "rule add pref 100 lookup local")
            hosts.set_up(name, "rule del pref 0")
            hosts.set_up(name, "rule add pref 10 iif eth0 ipproto tcp dport 31000-31999 blackhole")

        drop("h2")
        ways = [("32000-32099", 0, []),
                ("31000-31099", 0, ["connections are made only from h2 to h1"])]
        for ports, code, texts in ways:
            outcome = _use_tool(session, hosts, ["doctor", "--engine", "hydra", "--json"], {"FASTPATH_PORTS": ports})
            problem, _ = _judge(outcome, code, texts)
            if problem:
                return f"ports {ports}: {problem}", outcome.text()
        drop("h1")
        outcome = _use_tool(session, hosts, ["doctor", "--engine", "hydra", "--json"], {"FASTPATH_PORTS": "31000-31099"})
        problem, _ = _judge(outcome, 1, ["neither reaches the other"])
        return problem, outcome.text()


def case_doctor_differences(session):
    """Hosts with other limits or with another release of Fastpath are told of."""
    if reason := lacks_hosts():
        return session.skip("hosts.doctor_differences", reason)
    with Hosts(3) as hosts:
        tool = os.path.join(session.prefix, "bin", "fastpath")
        plain, limited = hosts.rsh, os.path.join(hosts.folder, "limited")
        with open(limited, "w", encoding="ascii") as file:
            # Without the right to lock as much as it likes.
            file.write(f'#!/bin/sh\ncase " $* " in *" h2 "*) ulimit -n 200; ulimit -l 64; '
                       f'exec setpriv --bounding-set=-ipc_lock {plain} "$@";; esac\nexec {plain} "$@"\n')
        os.chmod(limited, 0o755)
        hosts.rsh = limited
        outcome = _use_tool(session, hosts, ["doctor", "--engine", "hydra", "--json"], {})
        problem, _ = _judge(outcome, 0, ["numbers of files open", "lock different amounts of memory"])
        if problem or "200" not in outcome.out or "65536 bytes" not in outcome.out:
            return f"limits: {problem}", outcome.text()
        hosts.rsh = plain
        # The same but for its number.
        with open(tool, "rb") as file:
            program = file.read()
        version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
        other = os.path.join(hosts.folder, "fastpath")
        with open(other, "wb") as file:
            file.write(program.replace(version.encode(), b"9" * len(version)))
        os.chmod(other, 0o755)
        subprocess.run(hosts.on("h2", ["mount", "--bind", other, tool]), check=True)
        outcome = _use_tool(session, hosts, ["doctor", "--engine", "hydra", "--json"], {})
        problem, _ = _judge(outcome, 1, ["Fastpath is not the same everywhere"])
        return problem, outcome.text()


def case_ps(session):
    """`fastpath ps --host`: the ranks of a job on all of its hosts, and those that wait for each other."""
    if reason := lacks_hosts():
        return session.skip("hosts.ps", reason)
    with _agents(session) as (hosts, way):
        job = session.start(way.on_hosts(1, [session.binary("verdicts"), "ring"]), timeout=100)
        _await_ready(job, 2)
        found, why = {}, []
        # Ranks say what they wait for once they sleep; a verdict needs waits of a second.
        for _ in range(200):
            outcome = _use_tool(session, hosts, ["ps", "--why", "--json", "--engine", "hydra"], {})
            if problem := outcome.problem():
                job.finish()
                return problem, outcome.text()
            found = json.loads(outcome.out)
            why = [one["why"] for one in found.get("why", [])]
            if why and "waits for rank 1, which waits for rank 0" in why[0]:
                break
        text = _use_tool(session, hosts, ["ps", "--why", "--engine", "hydra"], {})
        job.process.terminate()
        job.await_end(10)
        job.finish()
    ranks = {host["host"]: [rank["rank"] for entry in host["jobs"] for rank in entry["ranks"]] for host in found["hosts"]}
    if ranks != {"h1": [0], "h2": [1]} or len({entry["id"] for host in found["hosts"] for entry in host["jobs"]}) != 1:
        return f"ranks {ranks}", json.dumps(found)
    if len(why) != 1 or "rank 0 waits for rank 1, which waits for rank 0" not in why[0]:
        return f"why {why}", json.dumps(found)
    listed = all(f"on h{rank + 1}" in text.out and f"rank {rank} (process" in text.out for rank in (0, 1))
    numbers = [entry["job"] for entry in found["hosts"][0]["jobs"]]
    is_named = f"job {numbers[0]} on h1: rank 0 waits for rank 1" in text.out
    return None if listed and is_named else ("the list lacks something", text.text())


def _make(check, kind, *arguments, hosts=3):
    def case(session):
        name = f"hosts.{kind.__name__.lower()}"
        if reason := missing():
            session.skip(name, f"no virtual hosts: {reason}")
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


# In the short runs: all of the launcher that is most used, directly and through our agents, and of Slurm what differs
# most between launchers. PRRTE fails now and then by itself (exit code 213, a hang when no rank is left), so that ranks
# meet under it and no more.
SHORT = [Hydra, AgentsHydra]
# What runs with every change, of each engine or of one; the rest runs in its slice.
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
    """Hosts with addresses of version 6 alone. Hydra's own processes cannot reach each other there."""
    if reason := missing():
        return session.skip("hosts.version_6", f"no virtual hosts: {reason}")
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


# PRRTE's, as above.
case_version_6.long = True


# A rank on each host: what goes on while one computes goes on by the network. Without the thread too the network takes
# messages of 64 KiB, so that case is for ranks of one host.
PROGRESS = ["progress_thread", "coll_progress"]
case_progress = _make(_programs, AgentsHydra, PROGRESS, 1, [["without"]])

case_lengths = _make(_lengths, AgentsHydra)

# A rank on each host, which have exchanged nothing yet: one that has left is found so, one that is late is waited for.
# A collective call that one joins late is waited for in MPI_Finalize; one that a rank there has not begun is an error.
LEAVING = ["pt2pt_finished", "pt2pt_late", "coll_joined_late"]
case_leaving = _make(_programs, AgentsHydra, LEAVING, 1)
case_unjoined = _make(_unjoined, AgentsHydra)
case_leaving_directly = _make(_programs, Hydra, LEAVING, 1, hosts=4)

# Three hosts with ranks, and one mount that they share.
case_files_on_three = _make(_programs, AgentsHydra, FILES, hosts=4)
case_files_on_three.long = False
case_files_together_on_three = _make(_programs, AgentsHydra, ["file_together"], hosts=4)
case_files_together_on_three.long = True

case_leaving_directly.sliced = True

# They wait: for a host that is silent, for a time limit.
for _case in (case_silent_host, case_silent_host_directly, case_frozen_host, case_timeout, case_silent_agent,
              case_input_that_pauses):
    _case.needs = {"processors": 0}
