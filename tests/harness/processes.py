"""Processes of this machine, read from /proc. A process that has ended has no variables, state or command."""

import os


def variable(pid, name):
    """Value of a variable in the environment that a process was started with, or None."""
    start = f"{name}=".encode()
    for word in _read(pid, "environ").split(b"\0"):
        if word.startswith(start):
            return word[len(start):].decode(errors="replace")
    return None


def rank(pid):
    """Rank of a process, or None. The environment holds the rank from exec on."""
    number = variable(pid, "FASTPATH_RANK")
    return int(number) if number and number.isdigit() else None


def stat(pid, thread=None):
    """Fields of /proc/PID/stat after the name, the state first; [] if there is no such process or thread."""
    return _read(pid, "stat" if thread is None else f"task/{thread}/stat").rpartition(b")")[2].decode().split()


def name(pid):
    """Name of a process's main thread."""
    return _read(pid, "comm").decode(errors="replace").rstrip("\n")


def parent(pid):
    """Parent of a process; None if the process has ended."""
    fields = stat(pid)
    return int(fields[1]) if fields else None


def words(pid):
    """Command line of a process, as a list of words."""
    return _read(pid, "cmdline").decode(errors="replace").split("\0")


def find(belongs):
    """Live processes for which `belongs(pid)` is true, each with its command."""
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
