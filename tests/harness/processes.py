"""Processes of this machine, as /proc describes them. A process that has ended has no variables, no state and no command."""

import os


def variable(pid, name):
    """A variable of the environment that a process was started with, or None."""
    start = f"{name}=".encode()
    for word in _read(pid, "environ").split(b"\0"):
        if word.startswith(start):
            return word[len(start):].decode(errors="replace")
    return None


def rank(pid):
    """The rank that a process is, or None: a process has its rank in its environment from exec on."""
    number = variable(pid, "FASTPATH_RANK")
    return int(number) if number and number.isdigit() else None


def stat(pid, thread=None):
    """The fields of /proc/PID/stat after the name, the state first; [] where there is no such process or thread."""
    return _read(pid, "stat" if thread is None else f"task/{thread}/stat").rpartition(b")")[2].decode().split()


def name(pid):
    """The name of a process's main thread."""
    return _read(pid, "comm").decode(errors="replace").rstrip("\n")


def parent(pid):
    """The process that has started another one, or that took it over; None where it has ended."""
    fields = stat(pid)
    return int(fields[1]) if fields else None


def words(pid):
    """The words of a process's command."""
    return _read(pid, "cmdline").decode(errors="replace").split("\0")


def find(belongs):
    """The live processes for which `belongs(pid)` is true, each with its command."""
    found = {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if belongs(pid) and (fields := stat(pid)) and fields[0] not in "ZX":
            found[pid] = " ".join(words(pid)).strip()
    return found


def _read(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:  # it has just ended, or belongs to another user
        return b""
