"""Virtual hosts: kernel namespaces on a private switch. They need root only and do not touch the machine's network.
Their names are private to a run, and they end with the runner, even if it is killed."""

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile

# Namespaces of each host. Files are the same on all hosts, as on a cluster.
HOST = ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
SWITCH = ["unshare", "--net", "--pid", "--fork", "--kill-child"]
ENTER = ["--net", "--uts", "--ipc", "--mount", "--pid", "--no-fork"]
# The entering shell is not yet a process of the host, but its children are. nsenter's own fork would stop itself when
# its child is stopped, and stay stopped when the child continues.
AS_CHILD = '"$@"; exit $?'

# Replacement of ssh, for launchers that support it: rsh [OPTION...] HOST COMMAND..., run by a shell.
RSH = """#!/bin/bash
while [[ $1 == -* ]]; do case $1 in -l|-p|-o|-i) shift;; esac; shift; done
host=$1; shift
exec {enter} -t $(cat {folder}/$host.pid) {namespaces} -- \\
    env -i HOME=/root USER=root SHELL=/bin/bash PATH=/usr/local/bin:/usr/bin:/bin \\
    MPI_TEST_MARK=$MPI_TEST_MARK bash -c '{as_child}' bash bash -c "$*"
"""

SET_UP = """
set -e
hostname {name}
mount -t tmpfs -o mode=1777 none /dev/shm
mount --bind {folder}/hosts /etc/hosts
ip link set lo up
echo ready
exec sleep infinity
"""


def _die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def missing():
    """Returns why virtual hosts are not possible on this machine, or None."""
    for word in ("unshare", "nsenter", "ip"):
        if shutil.which(word) is None:
            return f"no {word}"
    attempt = subprocess.run([*SWITCH, "ip", "link", "add", "type", "bridge"], capture_output=True, text=True)
    return None if attempt.returncode == 0 else (attempt.stderr.strip().splitlines() or ["unshare fails"])[0]


class Hosts:
    """Hosts h0, h1, ... with addresses 10.77.0.10, 10.77.0.11, ..., or fd77::10, fd77::11, ... only. A context
    manager."""

    def __init__(self, count, version=4):
        self.version = version
        self.names = [f"h{i}" for i in range(count)]
        self.folder = tempfile.mkdtemp(prefix="mpi-hosts-")
        self.processes, self.pids = [], {}
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self):
        local = {4: "127.0.0.1", 6: "::1"}[self.version]
        lines = [f"{local} localhost"] + [f"{self.address(name)} {name}" for name in self.names]
        with open(os.path.join(self.folder, "hosts"), "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")
        self.switch = self._hold([*SWITCH, "sh", "-c", "set -e; ip link add br0 type bridge; ip link set br0 up; "
                             "echo ready; exec sleep infinity"])
        for name in self.names:
            self.pids[name] = pid = self._hold([*HOST, "sh", "-c", SET_UP.format(name=name, folder=self.folder)])
            with open(os.path.join(self.folder, name + ".pid"), "w", encoding="ascii") as file:
                file.write(str(pid))
            self.add_cable(name, "eth0", f"{self.address(name)}/64" if self.version == 6 else f"{self.address(name)}/24")
        self.rsh = os.path.join(self.folder, "rsh")
        with open(self.rsh, "w", encoding="ascii") as file:
            file.write(RSH.format(enter=shutil.which("nsenter"), folder=self.folder, namespaces=" ".join(ENTER),
                                  as_child=AS_CHILD))
        os.chmod(self.rsh, 0o755)

    def _hold(self, words):
        """Starts the process that holds a host's namespaces, and returns its id."""
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                   preexec_fn=_die_with_parent)
        self.processes.append(process)
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"a virtual host does not start: {' '.join(words)}")
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
            return int(file.read().split()[0])

    @staticmethod
    def _ip(pid, words):
        subprocess.run(["nsenter", "-t", str(pid), "--net", "ip", *words.split()], check=True)

    def address(self, name):
        return {4: "10.77.0.", 6: "fd77::"}[self.version] + str(10 + self.names.index(name))

    def add_cable(self, name, interface, address):
        """Connects an interface of the host to the switch."""
        port, pid = f"{name}-{interface}", self.pids[name]
        self._ip(self.switch, f"link add {port} type veth peer name {interface} netns {pid}")
        self._ip(self.switch, f"link set {port} master br0 up")
        # Without this, IPv6 addresses are usable only after a second of duplicate address detection.
        self._ip(pid, f"addr add {address} dev {interface}" + " nodad" * (":" in address))
        self._ip(pid, f"link set {interface} up")

    def on(self, name, words):
        """Command that runs `words` on a host."""
        return ["nsenter", "-t", str(self.pids[name]), *ENTER, f"--wd={os.getcwd()}", "--", "sh", "-c", AS_CHILD, "sh",
                *words]

    def add_network(self, name, interface, address):
        """Adds a network without a route to the host."""
        for words in (f"link add {interface} type bridge", f"addr add {address} dev {interface}",
                      f"link set {interface} up"):
            self._ip(self.pids[name], words)

    def set_up(self, name, words):
        """Changes the host's network with arguments of ip(8)."""
        self._ip(self.pids[name], words)

    def beside(self, name, words):
        """Command that runs `words` with a host's network and name, but this machine's processes, so that it can
        reach the other hosts with `rsh`."""
        return ["nsenter", "-t", str(self.pids[name]), "--net", "--uts", "--", *words]

    def has(self, name, pid):
        """Returns whether a process runs on a host, or has entered it."""
        try:
            return os.readlink(f"/proc/{pid}/ns/net") == os.readlink(f"/proc/{self.pids[name]}/ns/net")
        except OSError:
            return False  # it has just ended

    def stop(self, name):
        """Ends the host, as a power failure would."""
        os.kill(self.pids[name], signal.SIGKILL)

    def cut(self, name):
        """Drops all packets to and from the host."""
        self._ip(self.pids[name], "link set eth0 down")

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
