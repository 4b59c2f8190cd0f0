"""Jobs on several virtual hosts, one of which is silent, late, frozen or stopped, and the behavior of the others.
Needs root, for the hosts."""

import os
import re
import signal
import threading
import time

from harness.host_engines import AgentsHydra, Hydra, lacks_hosts, run, three_hosts
from harness.hosts import Hosts
from harness.job import await_word, signal_all


def _allow(job, fifo):
    """Gives the reader of a fifo an end of file, once there is a reader; returns when the job is over too."""
    while job.process.poll() is None:
        try:
            return os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            time.sleep(0.01)


def _has_caller(hosts, name):
    """Returns whether a connection on a host waits to be accepted."""
    rows = []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{hosts.pids[name]}/net/{table}", encoding="ascii") as file:
            rows += [line.split() for line in file.readlines()[1:]]
    return any(row[3] == "01" and row[9] == "0" for row in rows)


def case_silent_agent(session):
    """The agent of one host is stopped while a rank spawns processes there: the first agent still serves the others.
    When the stopped agent continues, the spawn completes."""
    if reason := lacks_hosts():
        return session.skip("hosts_waiting.silent_agent", reason)
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
            # A failing job cannot end while they are stopped.
            limit = threading.Timer(30, signal_all, (agents, signal.SIGCONT))
            limit.start()
            signal_all(agents, signal.SIGSTOP)
            _allow(running, may_spawn)
            # The first agent calls the stopped one; the kernel has accepted the connection.
            while running.process.poll() is None and not _has_caller(hosts, "h2"):
                time.sleep(0.01)
            _allow(running, may_ask)
            said = await_word(running, answered)
            limit.cancel()
            signal_all(agents, signal.SIGCONT)
        running.await_end(10)
        outcome = running.finish()
    return outcome.problem() or (None if agents and said else f"agents {agents}, said {said!r}"), outcome.text()


def case_input_that_pauses(session):
    """A rank that fails while standard input is silent ends the job, on any host."""
    if reason := lacks_hosts():
        return session.skip("hosts_waiting.input_that_pauses", reason)
    with three_hosts(session) as (_, way):
        program = ["sh", "-c", "test $FASTPATH_RANK = 3 && sleep 1 && exit 3; cat > /dev/null"]
        command = way.on_hosts(2, program)
        at = command.index("--host")
        command[at:at] = ["--stdin", "all"]
        reader, writer = os.pipe()
        running = session.start(command, stdin=reader, timeout=20)
        # In pieces, like typed input.
        for _ in range(10):
            os.write(writer, bytes(3000))
            time.sleep(0.02)
        running.await_end(10)
        outcome = running.finish()
        os.close(reader)
        os.close(writer)
    told = None if "rank 3 " in outcome.err else "rank 3 is not named"
    return outcome.problem(3, quiet=False) or told, outcome.text()


def case_frozen_host(session):
    """All processes on a host are stopped, while its kernel answers, as when a job is suspended. Ranks that wait for
    its ranks continue to wait until `--timeout` ends the job on the other hosts and names the silent host. Once the
    host continues, its processes end too."""
    if reason := lacks_hosts():
        return session.skip("hosts_waiting.frozen_host", reason)
    with three_hosts(session) as (hosts, way):
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
        signal_all(frozen, signal.SIGSTOP)
        # While the host is frozen, its processes cannot be ended.
        is_over = running.wait_gone(30, lambda pid: hosts.has("h2", pid))
        stays = sum(hosts.has("h2", pid) for pid, _ in running.processes())
        signal_all(frozen, signal.SIGCONT)
        running.await_end(10)
        outcome = running.finish()
    told = "rank 0 (process" in outcome.err and "rank 1 is on another node, h2" in outcome.err
    wrong = None if is_over and told and stays == len(frozen) else f"over: {is_over}, stopped {len(frozen)}, {stays} stay"
    return outcome.problem(124, quiet=False) or wrong, outcome.text()


def _silent_host(session, kind):
    """A host stops sending, as if it were frozen: ranks that wait for one of its ranks give up and name the host,
    and the job ends on the other hosts."""
    if reason := lacks_hosts():
        return session.skip("hosts_waiting.silent_host", reason)
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
        # Processes on that host cannot be notified. They take a moment to end with their host.
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
    """`--timeout` reports what the ranks of each host were doing at the time limit, before the end of others woke
    them; also if the engine starts one host later."""
    if reason := lacks_hosts():
        return session.skip("hosts_waiting.timeout", reason)
    with Hosts(3) as hosts:
        late = os.path.join(hosts.folder, "late")
        with open(late, "w", encoding="ascii") as file:
            file.write(f'#!/bin/sh\ncase " $* " in *" h2 "*) sleep 1;; esac\nexec {hosts.rsh} "$@"\n')
        os.chmod(late, 0o755)
        hosts.rsh = late
        way = AgentsHydra(hosts)
        way.prefix = session.prefix
        outcome = run(session, way, 1, [session.binary("ends"), "0", "waits"], options=["--timeout", "6"])
    found = re.findall(r"rank (\d) \(process \d+\) waits in MPI_Recv, peer (\d)", outcome.err)
    if sorted(found) != [("0", "1"), ("1", "0")] or outcome.code != 124 or outcome.left:
        return f"exit code {outcome.code}, ranks that wait: {found}", outcome.text()
    return None


# The cases wait: for a silent host, for a time limit.
for _case in (case_silent_host, case_silent_host_directly, case_frozen_host, case_timeout, case_silent_agent,
              case_input_that_pauses):
    _case.needs = {"processors": 0}
