"""Small limits, missing folders and small file systems: a job runs, or reports what is missing, the amount, and the
limit."""

import os
import re
import signal
import subprocess

from harness import job
from harness.slices import sliced

from . import seccomp

KIB, MIB = 1 << 10, 1 << 20
WELL = None  # in the tables below: the job runs

# A user without processes, for limits on the processes of a user.
UNPRIVILEGED = "54321"


def _container(session, ranks=4, words=("all",)):
    return [session.mpiexec, "-n", str(ranks), session.binary("container"), *words]


def _limit(words, name, soft, hard=None):
    """The command under a limit, which it may not raise."""
    limit = f"--{name}={soft}:{soft if hard is None else hard}"
    unprivileged = ["setpriv", "--bounding-set", "-sys_resource"] if os.geteuid() == 0 else []
    return [*unprivileged, "prlimit", limit, *words]


def _judge(outcome, ranks, said):
    """Returns what is wrong with a job that must run (`said` is WELL), or end with all of these texts."""
    if said is WELL:
        problem = outcome.problem()
        missing = not problem and outcome.out.count("is well") != ranks
        return "output is missing" if missing else problem
    if outcome.code == 0:
        return "it does not fail"
    missing = [words for words in said if not re.search(words, outcome.err)]
    return outcome.problem(outcome.code, quiet=False) or (missing and f"it does not say {missing[0]!r}")


def _first_wrong(runs):
    """Returns the first wrong one of (label, ranks, words of the command, expected texts, options)."""
    for label, ranks, words, said, *more in runs:
        outcome = job.run(words, timeout=20, **(more[0] if more else {}))
        problem = _judge(outcome, ranks, said)
        if problem:
            return f"{label}: {problem}", outcome.text()
    return None


def case_open_files(session):
    """4 ranks run with 64 open files; a smaller limit is an error that names the number."""
    plain = _container(session)
    return _first_wrong([
        ("64", 4, _limit(plain, "nofile", 64), WELL),
        ("30", 4, _limit(plain, "nofile", 30), WELL),
        ("soft 12", 4, _limit(plain, "nofile", 12, 64), WELL),
        ("20", 4, _limit(plain, "nofile", 20), [r"mpiexec needs \d+ open files for 4 ranks", r"the limit of 20 is enough", "ulimit -n"]),
        ("64, 40 ranks", 40, _limit(_container(session, 40), "nofile", 64),
         [r"mpiexec needs 102 open files for 40 ranks", r"enough for \d+ ranks"]),
    ])


def case_address_space(session):
    """Each limit of address space is enough, or the message has the amount needed and the limit."""
    enough = _first_wrong([("64 MiB", 4, _limit(_container(session), "as", 64 * MIB), WELL)])
    if enough:
        return enough
    explained = 0
    for mib in (10, 12, 14, 16, 20, 24, 32, 48):
        outcome = job.run(_limit(_container(session), "as", mib * MIB), timeout=20)
        if outcome.code == 0 and not outcome.problem():
            continue
        if outcome.code == 3 and "no memory for" in outcome.err:
            continue  # the program itself did not start
        # If the loader of a rank runs out of memory, it prints its own message, and the launcher adds the limit.
        wanted = [r"\d+ (KiB|MiB) of address space|loading shared libraries|memory allocation of \d+ bytes",
                  r"limited to [\d]+ (KiB|MiB) \(`ulimit -v`\)"]
        problem = _judge(outcome, 4, wanted)
        if problem:
            return f"{mib} MiB: {problem}", outcome.text()
        explained += 1
    if not explained:
        return "no amount was too small"
    few = _limit(_container(session, 2, ["requests"]), "as", 100 * MIB)
    return _first_wrong([("requests", 2, few, [r"all \d+ requests are in use", "ulimit -v"])])


@sliced
def case_other_limits(session):
    plain, spins = _container(session), [session.mpiexec, "-n", "2", "sh", "-c", "while :; do :; done"]
    flood = [session.mpiexec, "-n", "1", "sh", "-c", "head -c 200000 /dev/zero"]
    return _first_wrong([
        ("private memory", 4, _limit(plain, "data", 32 * MIB), WELL),
        ("little private memory", 4, _limit(plain, "data", 2 * MIB), [r"limited to 2048 KiB \(`ulimit -d`\)"]),
        ("size of files", 4, _limit(plain, "fsize", 1 << 30), WELL),
        ("soft size of files", 4, _limit(plain, "fsize", 64 * KIB, 1 << 40), WELL),
        ("small files", 4, _limit(plain, "fsize", MIB), [r"memory file \d+ MiB long", r"limited to 1024 KiB \(`ulimit -f`\)"]),
        ("output too large", 1, _limit(flood, "fsize", 64 * KIB, 1 << 40), ["cannot write to standard output"]),
        ("locked memory", 4, _limit(plain, "memlock", 0), WELL),
        ("stack", 4, _limit(plain, "stack", 128 * KIB), WELL),
        ("processor time", 2, _limit(spins, "cpu", 1), [r"processor time of a process is limited to 1 s \(`ulimit -t`\)"]),
        ("signals", 4, _limit(plain, "sigpending", 0), WELL),
    ])


def case_processes(session):
    """A limit on the processes of a user, who has no processes besides the job."""
    become = []
    if os.geteuid() == 0:
        become = ["setpriv", "--reuid", UNPRIVILEGED, "--regid", UNPRIVILEGED, "--clear-groups"]
        if subprocess.run([*become, "test", "-x", session.mpiexec]).returncode != 0:
            session.skip("container.processes", "another user cannot reach the installation")
            return None
    said = [r"number of processes is limited to \d+ for this user: raise `ulimit -u`"]
    limited = lambda most: [*become, "prlimit", f"--nproc={most}:{most}", *_container(session)]
    # If the run is not root's, the user has more processes than that already.
    return _first_wrong([(f"{most} processes", 4, limited(most), said) for most in (1, 2, 4)])


def _isolate(setup, words):
    """The command in a mount namespace with changed folders."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", setup + '\nexec "$@"', "sh", *words]


HIDE = "mount -t tmpfs -o ro,size=4k none "
# Nothing can be written, /tmp included.
READ_ONLY = "mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp && mount -o remount,bind,ro /"


def _can_isolate(session, name):
    if subprocess.run(_isolate(HIDE + "/dev/shm", ["true"]), capture_output=True).returncode == 0:
        return True
    session.skip(name, "no mount namespace can be created")
    return False


def case_missing_folders(session):
    if not _can_isolate(session, "container.missing_folders"):
        return None
    matrix = seccomp.Matrix(session)
    plain, number = _container(session), matrix.numbers["memfd_create"]
    refused = [matrix.refuse, "1", number, "--", *plain]
    nowhere = [f"{HIDE}/dev/shm", READ_ONLY]
    hide = lambda *folders: " && ".join(HIDE + folder for folder in folders)
    return _first_wrong([
        ("no /proc", 4, _isolate(hide("/proc"), plain), WELL),
        ("no /sys", 4, _isolate(hide("/sys"), plain), WELL),
        ("no /dev", 4, _isolate(hide("/dev"), plain), WELL),
        ("nothing can be written", 4, _isolate(READ_ONLY, plain), WELL),
        ("none of all", 4, _isolate(" && ".join([*nowhere, hide("/sys", "/proc", "/dev")]), plain), WELL),
        ("no memory file", 4, refused, WELL),
        ("no memory file, no /dev/shm", 4, _isolate(hide("/dev/shm"), refused), WELL),
        ("no memory file, TMPDIR", 4, _isolate(" && ".join([nowhere[0], "mount -t tmpfs none /mnt", READ_ONLY]), refused),
         WELL, {"env": {"TMPDIR": "/mnt"}}),
        ("no place for a file", 4, _isolate(" && ".join(nowhere), refused),
         ["memfd_create: ", "can be made in /dev/shm: ", "can be made in /tmp: ", "seccomp"]),
    ])


def case_small_shared_memory(session):
    """/dev/shm of any size: no signal and no hang, but an error with the amount missing and the place."""
    if not _can_isolate(session, "container.small_shared_memory"):
        return None
    matrix = seccomp.Matrix(session)
    number = matrix.numbers
    for names in (["memfd_create"], ["memfd_create", "fallocate"]):
        refused = [matrix.refuse, "1", *(number[name] for name in names), "--", *_container(session)]
        enough = False
        for kib in (16, 64, 400, 600, 700, 800, 1000, 64 * KIB):
            small = _isolate(f"mount -t tmpfs -o size={kib}k none /dev/shm", refused)
            outcome = job.run(small, timeout=20)
            enough = outcome.code == 0
            said = WELL if enough else [r"\d+ (B|KiB|MiB) needed, \d+ (B|KiB|MiB) available in the file system", "--shm-size"]
            problem = _judge(outcome, 4, said)
            if problem:
                return f"{kib} KiB without {', '.join(names)}: {problem}", outcome.text()
        if not enough:
            return "64 MiB are not enough for 4 ranks"
    return None


def case_killed(session):
    """Without memory files: no object has a name, even if all processes are killed at once."""
    matrix = seccomp.Matrix(session)
    refused = [matrix.refuse, "1", matrix.numbers["memfd_create"], "--", *_container(session, 2, ["wait"])]
    for folder in ("/dev/shm", None):
        words = refused
        if folder:
            if not _can_isolate(session, "container.killed"):
                continue
            words = _isolate(HIDE + folder, refused)
        running = session.start(words)
        while sum("container" in command and "mpiexec" not in command for _, command in running.processes()) < 2:
            if running.process.poll() is not None:
                return "the job has ended", running.finish().text()
        os.kill(running.process.pid, signal.SIGKILL)
        if not running.wait_gone(20):
            return "processes are left"
        outcome = running.finish()
        if outcome.left:
            return f"left behind: {outcome.left}", outcome.text()
    return None
