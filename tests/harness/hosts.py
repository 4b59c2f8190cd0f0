"""Virtual hosts: namespaces of the kernel on a switch of their own. They need root and nothing else, touch nothing of
the machine's own network, have no names that another run could have too, and end with the runner, however that ends."""

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile

# Of each host: what it does not share with the machine. Files are the same everywhere, as on a cluster.
HOST = ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
SWITCH = ["unshare", "--net", "--pid", "--fork", "--kill-child"]
ENTER = ["--net", "--uts", "--ipc", "--mount", "--pid", "--no-fork"]
# The shell that enters is not of the host's processes yet, but what it starts is. nsenter's own fork would stop itself
# once its child was stopped, and stay so when that goes on.
AS_CHILD = '"$@"; exit $?'

# In place of ssh, for launchers that want it: rsh [OPTION...] HOST COMMAND..., which goes through a shell.
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
    """Why there can be no virtual hosts here, or None."""
    for word in ("unshare", "nsenter", "ip"):
        if shutil.which(word) is None:
            return f"no {word}"
    attempt = subprocess.run([*SWITCH, "ip", "link", "add", "type", "bridge"], capture_output=True, text=True)
    return None if attempt.returncode == 0 else (attempt.stderr.strip().splitlines() or ["unshare fails"])[0]


class Hosts:
    """Hosts h0, h1, ... with addresses 10.77.0.10, 10.77.0.11, ..., or fd77::10, fd77::11, ... alone. To be used as a
    context."""

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
        """Starts the process that holds a host's namespaces; its number."""
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
        """Connects an interface of the host with the switch."""
        port, pid = f"{name}-{interface}", self.pids[name]
        self._ip(self.switch, f"link add {port} type veth peer name {interface} netns {pid}")
        self._ip(self.switch, f"link set {port} master br0 up")
        # Addresses of version 6 could be used only after a second, in which the kernel looks for another such host.
        self._ip(pid, f"addr add {address} dev {interface}" + " nodad" * (":" in address))
        self._ip(pid, f"link set {interface} up")

    def on(self, name, words):
        """The command that runs `words` on a host."""
        return ["nsenter", "-t", str(self.pids[name]), *ENTER, f"--wd={os.getcwd()}", "--", "sh", "-c", AS_CHILD, "sh",
                *words]

    def add_network(self, name, interface, address):
        """Gives the host one more network, which leads nowhere."""
        for words in (f"link add {interface} type bridge", f"addr add {address} dev {interface}",
                      f"link set {interface} up"):
            self._ip(self.pids[name], words)

    def set_up(self, name, words):
        """Changes something of the host's network, by words of ip(8)."""
        self._ip(self.pids[name], words)

    def beside(self, name, words):
        """The command that runs `words` with the network and the name of a host, but with this machine's processes: so
        that it can reach the other hosts by `rsh`."""
        return ["nsenter", "-t", str(self.pids[name]), "--net", "--uts", "--", *words]

    def has(self, name, pid):
        """Whether a process is on a host, or has entered it."""
        try:
            return os.readlink(f"/proc/{pid}/ns/net") == os.readlink(f"/proc/{self.pids[name]}/ns/net")
        except OSError:
            return False  # it has just ended

    def stop(self, name):
        """The host is gone, as if its power had failed."""
        os.kill(self.pids[name], signal.SIGKILL)

    def cut(self, name):
        """No packet reaches the host or leaves it any more."""
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
