"""Messages over kernel network connections (tcp): listening sockets, strangers at the ports, too few ports, and a
rank that dies."""

import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from harness.host_engines import AgentsHydra, Hydra, lacks_hosts
from harness.hosts import Hosts
from harness.job import await_word

TCP = {"FASTPATH_TRANSPORTS": "tcp"}


LISTENS, CONNECTED = "0A", "01"


def _sockets(job, net, state, without="no such program"):
    """The sockets of a job's processes in a state: for each its own address and port, then the peer's. `net`: file
    of the kernel's socket table. `without`: name prefixes of programs whose sockets are left out, also if children
    inherit them."""
    inodes, left_out = set(), set()
    for pid, command in job.processes():
        is_left_out = os.path.basename(command.split()[0]).startswith(without)
        try:
            for name in os.listdir(f"/proc/{pid}/fd"):
                (left_out if is_left_out else inodes).update(re.findall(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{name}")))
        except OSError:
            continue  # it has just ended
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            with open(f"{net}/{table}", encoding="ascii") as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        for row in rows:
            if row[3] == state and row[9] in inodes - left_out:
                (address, port), (peer, its_port) = (end.split(":") for end in row[1:3])
                found.add((address, int(port, 16), peer, int(its_port, 16)))
    return found


def _listening(job, net="/proc/net"):
    """Address and port of the sockets on which processes of a job listen."""
    return {(address, port) for address, port, _, _ in _sockets(job, net, LISTENS)}


def _wait_listening(job, count, seconds=30):
    """Listening sockets, once there are `count` of them or the job has ended."""
    end = time.monotonic() + seconds
    while len(_listening(job)) < count and job.process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    return _listening(job)


def _endless(session, env, **more):
    """A job of two ranks that exchange messages, and a function that ends it."""
    folder = tempfile.mkdtemp(prefix="mpi-network-")
    begun, end = os.path.join(folder, "begun"), os.path.join(folder, "end")
    os.mkfifo(begun)
    job = session.mpirun(2, [session.binary("endless"), begun, end], env=env, **more)
    await_word(job, begun)

    def finish():
        open(end, "w", encoding="utf-8").close()
        outcome = job.finish()
        shutil.rmtree(folder, ignore_errors=True)
        return outcome

    return job, finish


def case_listens_on_loopback_within_a_node(session):
    """Ranks of a job on this machine listen on loopback only, and not at all with shared memory."""
    job, finish = _endless(session, {})
    ports = _listening(job)
    problem = finish().problem()
    if problem or ports:
        return problem or f"a job in shared memory listens at {ports}"
    job, finish = _endless(session, TCP)
    ports = _listening(job)
    problem = finish().problem()
    if problem or len(ports) != 2 or any(address != "0100007F" for address, _ in ports):
        return problem or f"two ranks listen at {ports}"
    return None


def _pester(port, stop):
    """Connects strangers of all kinds, until `stop`; returns their number."""
    words = [b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(64), os.urandom(4000), b"FPt1" + bytes(60)]
    held, count = [], 0
    while not stop.is_set():
        try:
            stranger = socket.create_connection(("127.0.0.1", port), timeout=5)
            word = words[count % len(words)]
            stranger.sendall(word)
            count += 1
            held.append(stranger)  # silent ones stay connected
        except OSError:
            pass  # the end of the job, or a closed connection
        while len(held) > 200:
            held.pop(0).close()
    for stranger in held:
        stranger.close()
    return count


def case_strangers_at_the_ports(session):
    """Garbage, other protocols and silence at every port, while ranks connect and communicate: the job is not
    affected."""
    job = session.mpirun(3, [session.binary("traffic"), "5", "300"], env=TCP)
    ports, stop = _wait_listening(job, 3), threading.Event()
    counts = []
    threads = [threading.Thread(target=lambda port=port: counts.append(_pester(port, stop))) for _, port in ports]
    for thread in threads:
        thread.start()
    outcome = job.finish()
    stop.set()
    for thread in threads:
        thread.join()
    problem = outcome.problem()
    if not problem and not ports:
        problem = "no port was seen"
    return (problem, outcome.text()) if problem else None


def case_ports_that_are_not_enough(session):
    """A range of ports is respected, and its error has the number needed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    few = {**TCP, "FASTPATH_PORTS": f"{port}-{port}"}
    outcome = session.mpirun(2, [session.binary("pt2pt_status")], env=few).finish()
    if outcome.code == 0 or "has 1 port, and all are in use" not in outcome.err or "widen the range to 2 ports" not in outcome.err:
        return "two ranks at one port", outcome.text()
    for wrong in ("5-", "0-7", "b"):
        outcome = session.mpirun(2, [session.binary("pt2pt_status")], env={**TCP, "FASTPATH_PORTS": wrong}).finish()
        if outcome.code == 0 or "is not a range of ports" not in outcome.err:
            return f"FASTPATH_PORTS={wrong}", outcome.text()
    wide = {**TCP, "FASTPATH_PORTS": "30000-31000"}
    job, finish = _endless(session, wide)
    ports = {port for _, port in _listening(job)}
    problem = finish().problem()
    return problem or (None if len(ports) == 2 and all(30000 <= port <= 31000 for port in ports) else f"ports {ports}")


def case_interfaces_that_are_not_there(session):
    outcome = session.mpirun(2, [session.binary("pt2pt_status")], env={**TCP, "FASTPATH_INTERFACES": "no7"}).finish()
    told = "FASTPATH_INTERFACES=no7 matches no address of this host" in outcome.err
    return None if outcome.code != 0 and told else ("an interface that is not there", outcome.text())


def case_virtual_hosts_without_adapter(session):
    """Ranks of two hosts use tcp if there is no adapter, and the report has the reason."""
    program = [session.binary("mixed_hosts"), "aabb"]
    words = [session.mpiexec, "--timeout", "60", "--virtual-host", "a", "-n", "2", *program, ":",
             "--virtual-host", "b", "-n", "2", *program]
    env = {"FASTPATH_REPORT": "1", "FASTPATH_DEVICE": "no_such_9"}
    outcome = session.start(words, env=env).finish()
    problem = outcome.problem(quiet=False)
    if problem:
        return problem, outcome.text()
    lines = [line for line in outcome.err.splitlines() if "to ranks of other hosts" in line]
    if not lines or not all("tcp on port" in line and "no adapter: " in line for line in lines):
        return "the report does not say tcp, and why", outcome.text()
    return None


class _Hosts:
    """Two hosts in separate network namespaces, connected by a cable, which end with this process."""

    def __enter__(self):
        self.holders = [subprocess.Popen(["unshare", "--net", "sleep", "600"], preexec_fn=_die_with_parent) for _ in "ab"]
        try:
            a, b = (str(holder.pid) for holder in self.holders)
            for holder in self.holders:
                _wait_own_network(holder.pid)
            _ip("link", "add", "cable", "netns", a, "type", "veth", "peer", "name", "cable", "netns", b)
            for number, pid in enumerate((a, b), 1):
                self.run(pid, "addr", "add", f"10.77.0.{number}/24", "dev", "cable")
                self.run(pid, "addr", "add", f"fd77::{number}/64", "dev", "cable", "nodad")
                # A bridge of containers has the same address on every host, and some networks have no route.
                for name, address in (("docker0", "172.17.0.1/16"), ("vpn0", f"192.0.2.{number}/32")):
                    self.run(pid, "link", "add", name, "type", "veth", "peer", "name", name + "-end")
                    self.run(pid, "link", "set", name + "-end", "up")
                    self.run(pid, "addr", "add", address, "dev", name)
                for name in ("lo", "docker0", "vpn0", "cable"):
                    self.run(pid, "link", "set", name, "up")
                self.run(pid, "route", "add", "192.0.2.0/24", "dev", "vpn0")
            self._await_carrier((a, b))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for holder in self.holders:
            holder.kill()
            holder.wait()

    @staticmethod
    def run(pid, *words):
        subprocess.run(["nsenter", "-t", pid, "-n", "ip", *words], check=True, capture_output=True)

    @staticmethod
    def _await_carrier(pids, seconds=10):
        """Waits for the carriers of the interfaces, which the kernel detects after a moment."""
        end = time.monotonic() + seconds
        for pid in pids:
            for name in ("docker0", "vpn0", "cable"):
                words = ["nsenter", "-t", pid, "-n", "ip", "-o", "link", "show", "dev", name]
                while " state UP " not in subprocess.run(words, capture_output=True, text=True).stdout:
                    if time.monotonic() > end:
                        raise RuntimeError(f"{name} has no carrier")
                    time.sleep(0.01)

    def mpiexec(self, session, ranks, words, env=None, timeout=60):
        """A job with `ranks` ranks on each host."""
        command = [session.mpiexec, "--timeout", str(timeout)]
        for name, holder in zip("ab", self.holders):
            command += [":"] if name == "b" else []
            command += ["--virtual-host", name, "-n", str(ranks), "nsenter", "-t", str(holder.pid), "-n", *words]
        # Adapters of this machine reach neither of the hosts.
        return session.start(command, timeout=timeout, env={"FASTPATH_TRANSPORTS": "shm,tcp", **(env or {})})


def _die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _wait_own_network(pid):
    own = os.readlink("/proc/self/ns/net")
    end = time.monotonic() + 10
    while os.readlink(f"/proc/{pid}/ns/net") == own:
        if time.monotonic() > end:
            raise RuntimeError("no network namespace")
        time.sleep(0.01)


def _may_have_hosts():
    """Returns whether network namespaces and pairs of interfaces can be created on this machine."""
    try:
        with _Hosts():
            return True
    except (OSError, RuntimeError, subprocess.CalledProcessError):
        return False


def case_two_hosts(session):
    """Ranks in two network namespaces connect by the one address with a route, of either IP version."""
    if not _may_have_hosts():
        return session.skip("network.two_hosts", "no network namespaces can be made here")
    with _Hosts() as hosts:
        ways = [{}, {"FASTPATH_WAIT": "sleep"}, {"FASTPATH_INTERFACES": "10.77.0.0/16"}, {"FASTPATH_INTERFACES": "fd77::/16"},
                {"FASTPATH_INTERFACES": "docker0,vpn0,cable"}]
        for env in ways:
            outcome = hosts.mpiexec(session, 2, [session.binary("mixed_hosts"), "aabb"], env).finish()
            problem = outcome.problem()
            if problem:
                return f"{env}: {problem}", outcome.text()
        # No address with a route: an error that lists the attempts, and no hang.
        outcome = hosts.mpiexec(session, 1, [session.binary("mixed_hosts"), "ab"], {"FASTPATH_INTERFACES": "docker0"}).finish()
        if outcome.code != 16 or "cannot be reached: 172.17.0.1:" not in outcome.err:
            return "hosts that do not reach each other", outcome.text()
    return None


def case_listens_where_it_is_allowed(session):
    """Addresses that FASTPATH_INTERFACES excludes have no listening socket, and each of the others has one."""
    if not _may_have_hosts():
        return session.skip("network.listens_where_it_is_allowed", "no network namespaces can be made here")
    with _Hosts() as hosts:
        for allowed, wanted in [("^docker0,^vpn0", 2), ("10.77.0.0/16", 1), ("cable,docker0", 3)]:
            folder = tempfile.mkdtemp(prefix="mpi-network-")
            begun, end = os.path.join(folder, "begun"), os.path.join(folder, "end")
            os.mkfifo(begun)
            env = {"FASTPATH_INTERFACES": allowed}
            job = hosts.mpiexec(session, 1, [session.binary("endless"), begun, end], env)
            await_word(job, begun)
            found = [_listening(job, f"/proc/{holder.pid}/net") for holder in hosts.holders]
            open(end, "w", encoding="utf-8").close()
            outcome = job.finish()
            shutil.rmtree(folder, ignore_errors=True)
            if problem := outcome.problem():
                return f"{allowed}: {problem}", outcome.text()
            for one in found:
                anywhere = [address for address, _ in one if not address.strip("0")]
                if len(one) != wanted or len({port for _, port in one}) != 1 or anywhere:
                    return f"{allowed}: a rank listens at {sorted(one)}"
    return None


def _written(address):
    """An address in the form of the kernel's table."""
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    return "".join(packed[at:at + 4][::-1].hex().upper() for at in range(0, len(packed), 4))


def case_allowed_between_engine_hosts(session):
    """FASTPATH_INTERFACES and FASTPATH_PORTS apply to all sockets of ours on several hosts, directly under an engine
    and through our agents: for messages, and between leaders of nodes and agents."""
    if reason := lacks_hosts():
        return session.skip("network.allowed_between_engine_hosts", reason)
    with Hosts(3) as hosts:
        for number, name in enumerate(hosts.names):
            hosts.add_cable(name, "data0", f"10.78.0.{10 + number}/24")
            hosts.add_cable(name, "data6", f"fd78::{10 + number}/64")
        agents = AgentsHydra(hosts)
        agents.prefix = session.prefix
        four, six = "10.78.0.{}", "fd78::{}"
        ways = [(Hydra(hosts), "data0", four), (agents, "10.78.0.11,10.78.0.12", four), (agents, "10.78.0.0/24", four),
                (Hydra(hosts), "^eth0,^data6", four), (agents, "^eth0,^data0", six), (Hydra(hosts), "fd78::/16", six)]
        for number, (way, interfaces, address) in enumerate(ways):
            ports = range(31000 + 100 * number, 31010 + 100 * number)
            env = {"FASTPATH_INTERFACES": interfaces, "FASTPATH_PORTS": f"{ports[0]}-{ports[-1]}"}
            begun, end = (os.path.join(hosts.folder, f"{what}{number}") for what in ("begun", "end"))
            os.mkfifo(begun)
            job = session.start(way.on_hosts(1, [session.binary("endless"), begun, end]), env=env)
            await_word(job, begun)
            found = {}
            for host, pid in enumerate(hosts.pids.values()):
                own = _written(address.format(10 + host))
                for state in (LISTENS, CONNECTED):
                    found[host, state] = _sockets(job, f"/proc/{pid}/net", state, "hydra_") if host else set()
                heard = {(its, port) for its, port, _, _ in found[host, LISTENS]}
                if any(its != own or port not in ports for its, port in heard):
                    found["wrong"] = heard
            open(end, "w", encoding="utf-8").close()
            job.await_end(10)
            outcome = job.finish()
            ends = {_written(address.format(host)) for host in (11, 12)}
            joined = [found[host, CONNECTED] for host in (1, 2)]
            is_right = all({one[0], one[2]} == ends and {one[1], one[3]} & {*ports} for side in joined for one in side)
            # Each host has at least two connections: those of the ranks, and that of the leaders or the agents.
            if outcome.problem() or "wrong" in found or not is_right or min(map(len, joined)) < 2:
                return f"{way.name}, {interfaces}: {outcome.problem() or found}", outcome.text()
    return None


def case_no_descriptor_left(session):
    """A rank without a descriptor for a peer's connection reports it once, does not spin, and accepts it later."""
    outcome = session.mpirun(2, [session.binary("crowded")], env={**TCP, "FASTPATH_WAIT": "sleep"}).finish()
    if problem := outcome.problem(quiet=False):
        return problem, outcome.text()
    told = outcome.err.count("cannot accept a TCP connection of another rank")
    return None if told == 1 and "slept: yes" in outcome.out else ("no descriptor left", outcome.text())


def case_cut_cable(session):
    """The cable is cut under a rank that only waits: the silent host is given up and named, and the job ends."""
    if not _may_have_hosts():
        return session.skip("network.cut_cable", "no network namespaces can be made here")
    with _Hosts() as hosts:
        folder = tempfile.mkdtemp(prefix="mpi-network-")
        begun = os.path.join(folder, "begun")
        os.mkfifo(begun)
        job = hosts.mpiexec(session, 1, [session.binary("waits"), begun], timeout=120)
        await_word(job, begun)
        hosts.run(str(hosts.holders[1].pid), "link", "set", "cable", "down")
        outcome = job.finish()
        shutil.rmtree(folder, ignore_errors=True)
        # Keepalive probes of the kernel or ours detect it, depending on whether data was in flight.
        ends = ("the connection has ended", "the host has not answered")
        told = "rank 1 on " in outcome.err and any(end in outcome.err for end in ends)
        return None if outcome.code == 16 and told else ("a cut cable", outcome.text())


case_cut_cable.long = True
case_cut_cable.needs = {"processors": 0}


def case_killed_rank_over_network(session):
    """A rank is killed while the other only waits for its message: the job ends at once."""
    for env in (TCP, {**TCP, "FASTPATH_WAIT": "sleep"}):
        folder = tempfile.mkdtemp(prefix="mpi-network-")
        begun = os.path.join(folder, "begun")
        os.mkfifo(begun)
        job = session.mpirun(2, [session.binary("waits"), begun], env=env)
        victim = int(await_word(job, begun) or 0)
        if victim:
            os.kill(victim, signal.SIGKILL)
        outcome = job.finish()
        shutil.rmtree(folder, ignore_errors=True)
        problem = outcome.problem(128 + signal.SIGKILL, quiet=False)
        if problem or "rank 1" not in outcome.err or "SIGKILL" not in outcome.err:
            return problem or "the report does not name the rank", outcome.text()
    return None


# This case measures processor time.
case_no_descriptor_left.needs = {"alone": True}
