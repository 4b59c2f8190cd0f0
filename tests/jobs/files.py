"""What happens to files: the disk is full, a rank is killed while all write."""

import os
import shutil
import subprocess
import tempfile

MOUNTS = [["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]]


def _own_mount():
    """The words that start a program with mounts of its own; None where that is not allowed."""
    for words in MOUNTS:
        if shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True).returncode == 0:
            return words
    return None


def case_disk_full(session):
    return _fill_disk(session, [])


def case_disk_full_together(session):
    """The disk is full in one aggregator."""
    return _fill_disk(session, ["together"])


def _fill_disk(session, more):
    words = _own_mount()
    if words is None:
        session.skip("files.disk_full", "no file system can be mounted here")
        return None
    with tempfile.TemporaryDirectory() as folder:
        for ranks in (1, 2, 4):
            program = [session.mpiexec, "-n", str(ranks), "--timeout", "60", session.binary("file_faults"), "full",
                       os.path.join(folder, "file"), *more]
            mount = f'mount -t tmpfs -o size=1m none {folder} && exec "$@"'
            outcome = session.start([*words, "sh", "-c", mount, "sh", *program]).finish()
            problem = outcome.problem()
            if problem:
                return f"{ranks} ranks: {problem}", outcome.text()
    return None


def case_rank_killed(session):
    return _kill_rank(session, [])


def case_rank_killed_together(session):
    """A rank is killed while others have its bytes, or it has theirs."""
    return _kill_rank(session, ["together"])


def _kill_rank(session, more):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "file")
        killed = session.mpirun(3, [session.binary("file_faults"), "kill", path, *more]).finish()
        if killed.code != 137 or killed.left:
            return f"exit code {killed.code} instead of 137; left: {killed.left}", killed.text()
        if os.listdir(folder) != ["file"]:
            return f"there is more than the file: {os.listdir(folder)}", killed.text()
        again = session.mpirun(3, [session.binary("file_faults"), "again", path, *more]).finish()
        problem = again.problem()
        return (f"opened again: {problem}", again.text()) if problem else None
