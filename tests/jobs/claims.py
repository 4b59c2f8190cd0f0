"""Ranks are bound although another user holds every possible lock on the processors."""

import os
import subprocess
import sys
import tempfile

# Takes every lock on the folder of processors, as an unprivileged user; ends at the end of its input.
HOSTILE = """
import fcntl, os, sys
folder = sys.argv[1]
os.setgroups([]); os.setgid(65534); os.setuid(65534)
held = []
for name in ["", *os.listdir(folder)]:
    fd = os.open(os.path.join(folder, name), os.O_RDONLY)
    for lock in (lambda: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB),
                 lambda: fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB),
                 lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)):
        try:
            lock()
            held.append(fd)
        except OSError:
            pass
print("held", len(held), flush=True)
sys.stdin.read()
"""


def case_hostile_user(session):
    if os.geteuid() != 0:
        session.skip("claims.hostile_user", "only root can start a process of another user")
        return None
    processors = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="mpi-test-claims-") as folder:
        os.chmod(folder, 0o755)
        for cpu in processors:
            os.mkdir(os.path.join(folder, f"cpu{cpu}"))
        hostile = subprocess.Popen([sys.executable, "-c", HOSTILE, folder], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        try:
            held = hostile.stdout.readline().split()
            if held[:1] != ["held"] or int(held[1]) < len(processors):
                return f"the other user could not lock anything: {held}"
            return _look(session, folder)
        finally:
            hostile.stdin.close()
            hostile.wait()


def _look(session, folder):
    """A job of ours that needs every processor is bound to them."""
    ranks = len(os.sched_getaffinity(0))
    outcome = session.mpirun(ranks, ["true"], options=["--bind-to", "core", "--report-bindings"],
                             env={"FASTPATH_INTERNAL_CLAIMS": folder}).finish()
    bound = [line for line in outcome.err.splitlines() if " is bound to processor " in line]
    if len(bound) != ranks:
        return outcome.problem(quiet=False) or f"{len(bound)} of {ranks} ranks are bound", outcome.text()
    return outcome.problem(quiet=False)
