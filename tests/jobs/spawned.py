"""Spawned processes that fail end the processes connected with them. Otherwise they outlive their parents, and end
with their launcher. Without a launcher none can be spawned."""

import os
import signal
import tempfile
import time
from harness.slices import sliced


def _judge(outcome, code, texts):
    problem = outcome.problem(code, quiet=False)
    missing = [text for text in texts if text not in outcome.err]
    return problem or (f"the report lacks {missing}: {outcome.err}" if missing else None)


# Action of a child, exit code of the job, and expected texts of the report.
ENDS = {
    "abort": (9, ["aborted the job with code 9", "MPI_Abort on rank", "of 2 spawned", "spawn_ends"]),
    "dies": (137, ["was ended by signal 9, SIGKILL", "spawn_ends"]),
    "fails": (6, ["MPI_ERR_RANK", "of 2 spawned processes, rank ", " of the job, host "]),
    "leaves": (4, ["exited with code 4"]),
    "accept": (43, ["MPI_Comm_accept", "no other process of this job is left"]),
    "silent": (16, ["MPI_Recv", " of 2, host", "rank 0 has left the job (/bin/true, process ", "exited with code 0 before it called MPI_Init"]),
    "silent-any": (16, ["MPI_Recv", "left the job", "(rank 0: /bin/true, process ", "exited with code 0 before it called MPI_Init"]),
}


def _make(how, code, texts):
    def case(session):
        # Without tcp, other jobs cannot connect to a port either.
        ranks, env = (1, {"FASTPATH_TRANSPORTS": "shm"}) if how == "accept" else (2, None)
        return _judge(session.mpirun(ranks, [session.binary("spawn_ends"), how], env=env).finish(), code, texts)

    return case


# Failures of a process that is not connected with others: exit code, and expected texts of the report.
APART = {
    "abort": (9, "aborted the job with code 9"),
    "dies": (137, "was ended by signal 9, SIGKILL"),
    "exits": (3, "exited with code 3"),
    "fails": (6, "MPI_ERR_RANK"),
}


def _worlds(session, how, link):
    """Two parents with their children, one of which fails; returns the outcome."""
    with tempfile.TemporaryDirectory(prefix="mpi-worlds-") as folder:
        os.mkfifo(pipe := os.path.join(folder, "ends"))
        return session.mpirun(2, [session.binary("spawn_worlds"), how, link, pipe, "0"]).finish()


def judge_apart(outcome, how, goes_on):
    """One process has failed, with its world; all others have continued."""
    code, text = APART[how]
    problem = _judge(outcome, code, [text, "ranks that are not connected with the failed rank continue"])
    lines = sorted(outcome.out.splitlines())
    return problem or (None if lines == goes_on else f"there go on {lines}")


def judge_connected(outcome):
    """One process has exited with 3; all have ended."""
    problem = _judge(outcome, 3, ["exited with code 3"])
    return problem or (f"there go on {outcome.out}" if outcome.out or "continue" in outcome.err else None)


def _make_apart(how, link, goes_on):
    return lambda session: judge_apart(_worlds(session, how, link), how, goes_on)


def case_apart_later(session):
    """The first failure gives the job's exit code, and both are reported."""
    outcome = _worlds(session, "exits", "later")
    return _judge(outcome, 3, ["exited with code 3", "ranks that are not connected with the failed rank continue", "aborted the job with code 7"])


def _make_connected(link):
    """A communicator or a window that is kept connects the worlds: all end."""
    return lambda session: judge_connected(_worlds(session, "exits", link))


def case_hangs(session):
    """All waiting ranks are named, with the deadlock."""
    job = session.mpirun(1, [session.binary("spawn_ends"), "hangs"], timeout=6)
    return _judge(job.finish(), 124, ["deadlock: ", "rank 0 (process", "rank 1 (process", "MPI_COMM_PARENT"])


def case_outlives(session):
    """Children continue after their parents have ended, and their output still arrives, with their rank in the job."""
    outcome = session.mpirun(1, ["-l", session.binary("spawn_ends"), "outlives"]).finish()
    lines = sorted(outcome.out.splitlines())
    wrong = [line for line in lines if not line.endswith(" is done")]
    problem = outcome.problem(0) or (f"output is {lines}" if len(lines) != 2 or wrong else None)
    return problem or (None if lines[0].startswith("[1]") or "1" in lines[0].split("child")[0] else f"no rank: {lines}")


def case_launcher_killed(session):
    """Ranks end with their launcher, spawned ones too."""
    job = session.mpirun(1, [session.binary("spawn_ends"), "hangs"])
    while len([pid for pid, _ in job.processes()]) < 4 and job.process.poll() is None:
        time.sleep(0.01)
    os.kill(job.process.pid, signal.SIGKILL)
    job.process.wait()
    gone = job.wait_gone(10)
    outcome = job.finish()
    if not gone:
        return "left behind: processes of the job"
    return outcome.problem(-signal.SIGKILL, quiet=False)


def case_alone(session):
    """Without mpiexec a process starts one to spawn. The spawned processes are a separate job, whose end is reported
    and does not end this one. Its mpiexec may end a moment later."""
    job = session.start([session.binary("spawn_ends"), "leaves"])
    job.await_end(5)
    return _judge(job.finish(), 0, ["spawn_ends) exited with code 4"])


def _spawn_limited(session, program, kib):
    """The outcome of a program that spawns where the address space is limited."""
    words = [session.mpiexec, "-n", "2", *program]
    return session.start(["sh", "-c", f'ulimit -v {kib}; exec "$@"', "sh", *words]).finish()


def case_limited(session):
    """With limited address space the capacity for spawned processes is smaller, or zero, which is reported."""
    outcome = _spawn_limited(session, [session.binary("spawn_ends"), "leaves"], 8_000_000)
    if problem := _judge(outcome, 4, ["exited with code 4"]):
        return problem
    outcome = _spawn_limited(session, [session.binary("spawn_ends"), "leaves"], 70_000)
    return _judge(outcome, 53, ["MPI_ERR_SPAWN", "the call requests 2 more ranks", "room for 0", "ulimit -v"])


def case_terminated(session):
    """A rank that handles SIGTERM cannot spawn after it, because the child would not get the signal."""
    job = session.mpirun(1, [session.binary("spawn_late")])
    while b"ready" not in os.pread(job.out.fileno(), 100, 0) and job.process.poll() is None:
        time.sleep(0.01)
    job.process.send_signal(signal.SIGTERM)
    outcome = job.finish()
    return outcome.problem(128 + signal.SIGTERM, quiet=False) or (None if "refused" in outcome.out else f"output is {outcome.out!r}")


def case_missing(session):
    """A missing program is named."""
    job = session.mpirun(1, [session.binary("spawn_ends"), "leaves"], env={"FASTPATH_SPAWN_MAX": "1"})
    return _judge(job.finish(), 53, ["MPI_ERR_SPAWN", "the call requests 2 more ranks", "room for 1", "FASTPATH_SPAWN_MAX"])


def _bound(session, rounds, how, most="4"):
    return session.mpirun(1, [session.binary("spawn_bound"), str(rounds), how], env={"FASTPATH_SPAWN_MAX": most}).finish()


def case_full(session):
    """The bound applies to running processes; after they have ended the capacity is free again, also for all at
    once."""
    outcome = _bound(session, 0, "full")
    missing = [text for text in ("4 spawned ranks at a time: 4 run", "FASTPATH_SPAWN_MAX", "goes on") if text not in outcome.out]
    return outcome.problem(0) or (f"the output lacks {missing}: {outcome.out}" if missing else None)


@sliced
def case_again(session):
    """More processes are spawned in total than the job has capacity for at a time."""
    outcome = session.mpirun(2, [session.binary("spawn_again"), "200"]).finish()
    return outcome.problem(0)


def _make_reused(how, code, text):
    """Children that fail after they have disconnected release their capacity too."""

    def case(session):
        outcome = _bound(session, 12, how)
        problem = _judge(outcome, code, [text, "ranks that are not connected with the failed rank continue"])
        return problem or (None if outcome.out == "goes on\n" else f"the output is {outcome.out}")

    return case


case_reused_dies = _make_reused("dies", 137, "was ended by signal 9, SIGKILL")
case_reused_exits = _make_reused("exits", 1, "exited with code 0 before calling MPI_Finalize")


for _how, (_code, _texts) in ENDS.items():
    globals()[f"case_{_how}"] = _make(_how, _code, _texts)
for _how in APART:
    globals()[f"case_apart_{_how}"] = _make_apart(_how, "none", ["parent 0 goes on", "parent 1 goes on"])
    globals()[f"case_apart_{_how}_parents"] = _make_apart(_how, "parents", ["child 0 goes on", "child 1 goes on"])
globals()["case_apart_two"] = _make_apart(
    "dies", "two", [f"{who} {rank} goes on" for who in ("child", "parent") for rank in (0, 1)]
)
for _link in ("inter", "merged", "window"):
    globals()[f"case_connected_{_link}"] = _make_connected(_link)
# This case waits until its time limit.
case_hangs.needs = {"processors": 0}
