"""The launcher's report about a job that is ended while it waits: a deadlock if there is one, and no deadlock
otherwise."""

import os
import re
import signal
import struct
import subprocess
import time

from harness import processes
from harness.slices import sliced

# How the ranks wait for each other, their number, and the expected verdict.
DEADLOCKS = [
    ("ring", 2, r"deadlock: rank 0 waits for rank 1 \(MPI_Recv, tag 10, \d\.\d s\), "
                r"which waits for rank 0 \(MPI_Recv, tag 11, \d\.\d s\)"),
    ("ring", 3, r"deadlock: rank 0 waits for rank 1 \(.*\), which waits for rank 2 \(.*\), which waits for rank 0 \(.*\)"),
    ("pair", 4, r"deadlock: rank 0 waits for rank 1 \(.*\), which waits for rank 0 \(.*\)"),
    ("send", 2, r"deadlock: rank 0 waits for rank 1 \(MPI_Send, tag 5, .*\), which waits for rank 0 \(MPI_Send, .*\)"),
    ("reversed", 3, r"deadlock: rank 0 waits for rank 1 \(.*\), which waits for rank 0 \(.*\)"),
    ("self", 1, r"deadlock: rank 0 waits for itself \(MPI_Recv, tag 7, .*\)"),
    ("probe", 2, r"deadlock: rank 0 waits for rank 1 \(MPI_Probe, tag 9, .*\), which waits for rank 0 .*"),
    ("any", 3, r"deadlock of 3 ranks, .*: rank 0 waits for any of ranks 0, 1, 2 \(MPI_Recv, tag 8, .*\); rank 1 .*"),
    ("multiple-any", 2, r"deadlock of 2 ranks, .*: rank 0 waits for any of ranks 0, 1 \(.*\); rank 1 .*"),
    ("waitany", 3, r"deadlock of 3 ranks, .*: rank 0 waits for any of ranks 1, 2 \(MPI_Waitany, .*\); "
                   r"rank 1 waits for rank 0 \(.*\); rank 2 waits for rank 0 \(.*\)"),
    ("barrier-wait", 4, r"deadlock: rank 0 waits for rank \d \(MPI_Barrier, .*\), .*which waits for rank 0 \(.*\)"),
    ("wait-ibarrier", 4, r"deadlock: rank 0 waits for rank \d \(MPI_Wait for MPI_Ibarrier, .*\), .*which waits for rank 0 \(.*\)"),
    ("waitany-ibarrier", 2, r"deadlock: rank 0 waits for rank 1 \(MPI_Waitany, .*\), which waits for rank 0 \(MPI_Recv, .*\)"),
    ("disconnect", 2, r"deadlock: rank 0 waits for rank 1 \(MPI_Comm_disconnect, \d\.\d s\), "
                      r"which waits for rank 0 \(MPI_Recv, tag 17, .*\)"),
    ("disconnect-ibarrier", 2, r"deadlock: rank 0 waits for rank 1 \(MPI_Comm_disconnect, .*\), which waits for rank 0 \(.*\)"),
    ("disconnect-any", 2, r"deadlock of 2 ranks, .*: rank 0 waits for any of ranks 0, 1 \(MPI_Comm_disconnect, .*\); "
                          r"rank 1 waits for rank 0 \(MPI_Recv, .*\)"),
    ("multiple-threads", 2, r"deadlock: rank 0 waits for rank 1 \((thread .* in MPI_Recv, tag \d+, \d\.\d s(; )?){2}\), "
                            r"which waits for rank 0 \((thread .* in MPI_Recv, tag \d+, \d\.\d s(; )?){2}\)"),
    ("multiple-finalized", 2, r"this wait cannot end: rank 0 waits for any of ranks 0, 1 \(MPI_Recv, .*\), "
                              r"and all other ranks have finalized MPI or ended"),
]

# Jobs that progress, or might: no verdict.
HEALTHY = [
    ("work", 2, None), ("exchange", 4, None), ("await-work", 2, None), ("await-sleep", 3, None),
    ("barrier-work", 4, None), ("beside-ibarrier", 4, None), ("work-ibarrier", 3, None), ("disconnect-work", 2, None),
    ("disconnect-ibarrier-work", 3, None), ("thread-works", 2, None),
    ("multiple-threads-work", 3, None),
]


def _start(session, ranks, how, timeout=5, **more):
    return session.mpirun(ranks, [session.binary("verdicts"), *how.split(",")], timeout=timeout, **more)


def _await_ready(job, ranks):
    """Returns when all ranks have passed MPI_Init."""
    while os.pread(job.out.fileno(), 1 << 16, 0).count(b"ready") < ranks and job.process.poll() is None:
        time.sleep(0.01)


def _pid_of(job, rank):
    pid = job.rank_process(rank)
    if pid is None:
        raise RuntimeError(f"rank {rank} has no process")
    return pid


class _Page:
    """State of a rank's wait, from its page in the shared memory (crates/segment/src/page.rs)."""

    BYTES = 4096
    SLEEPING = 1

    def __init__(self, job, rank):
        known = processes.variable(_pid_of(job, rank), "FASTPATH_INTERNAL_JOB")
        path = f"/proc/{job.process.pid}/fd/{int(known.split(',')[1])}"
        fd = os.open(path, os.O_RDONLY)
        try:
            page = os.pread(fd, self.BYTES, (1 + rank) * self.BYTES)
        finally:
            os.close(fd)
        self.state, = struct.unpack_from("I", page, 0)
        self.waiting, = struct.unpack_from("I", page, 256 + 4)
        self.since_ns, = struct.unpack_from("Q", page, 256 + 24)
        self.asleep, = struct.unpack_from("I", page, 2472)

    def sleeps_long(self):
        """Returns whether the rank has waited for longer than the second that a verdict needs, and sleeps."""
        lasts = time.monotonic_ns() - self.since_ns > 1_000_000_000
        return self.waiting == 1 and lasts and self.state == self.SLEEPING and self.asleep == 1


def _await_sleep(job, ranks):
    """Returns when these ranks have slept long enough for a verdict."""
    while job.process.poll() is None:
        try:
            if all(_Page(job, rank).sleeps_long() for rank in ranks):
                return
        except (OSError, RuntimeError):
            pass  # the job has just ended
        time.sleep(0.01)


# A line above the ranks that names a cause without a proof.
CAUSE = (r"mpiexec: (no rank waits for another rank|.*no deadlock is proved, .*|.* waits? for rank \d+ \(process .*"
         r"|.*: a deadlock, unless a message is in flight)")


def _verdicts(outcome):
    """The report beyond the list of the ranks, without a cause that is no verdict."""
    lines = outcome.err.splitlines()
    listed = r"mpiexec: {3}rank \d|mpiexec: {5}|mpiexec: the job "
    return [line for line in lines if not re.match(listed, line) and not re.fullmatch(CAUSE, line)]


def _judge(outcome, verdict, code=124, listed=()):
    problem = outcome.problem(code, quiet=False)
    said = _verdicts(outcome)
    missing = [text for text in listed if not re.search(text, outcome.err)]
    if not problem and missing:
        problem = f"the report lacks {missing}"
    if not problem and verdict is None and said:
        problem = f"a verdict without a proof: {said[0]}"
    if not problem and verdict is not None and not (len(said) == 1 and re.fullmatch("mpiexec: " + verdict, said[0])):
        problem = f"{said} instead of {verdict}"
    return (problem, outcome.text()) if problem else None


def _judge_all(session, jobs, timeout=5):
    """Concurrent jobs, because each takes seconds: how, ranks, verdict."""
    started = [(_start(session, ranks, how, timeout), verdict) for how, ranks, verdict in jobs]
    answers = [_judge(job.finish(), verdict) for job, verdict in started]
    return next((answer for answer in answers if answer), None)


def case_deadlock(session):
    """Each true deadlock is reported, with the waiting ranks and their peers."""
    # Long enough for all of them to start on a busy machine, and to wait for the second that a verdict needs.
    return _judge_all(session, DEADLOCKS, timeout=8)


@sliced
def case_healthy(session):
    return _judge_all(session, HEALTHY)


def case_slept(session):
    """Deadlocks of ranks that sleep at once, and jobs ended by SIGTERM."""
    job = _start(session, 2, "ring", timeout=60, env={"FASTPATH_WAIT": "sleep"})
    _await_ready(job, 2)
    _await_sleep(job, [0, 1])
    os.kill(job.process.pid, signal.SIGTERM)
    return _judge(job.finish(), DEADLOCKS[0][2], 128 + signal.SIGTERM)


def case_terminated(session):
    """SIGTERM while the ranks work, and while one of them sleeps until another has worked."""
    for how, asleep in [("work", []), ("exchange", []), ("await-work", [0])]:
        job = _start(session, 2, how, timeout=60)
        _await_ready(job, 2)
        _await_sleep(job, asleep)
        os.kill(job.process.pid, signal.SIGTERM)
        answer = _judge(job.finish(), None, 128 + signal.SIGTERM)
        if answer:
            return answer
    return None


def case_stopped(session):
    """A stopped rank is reported as stopped, with the way to resume it; ranks that wait for it are no deadlock."""
    for how in ["await-work", "ring"]:
        job = _start(session, 2, how, timeout=8)
        _await_ready(job, 2)
        pid = _pid_of(job, 1)
        os.kill(pid, signal.SIGSTOP)
        # On a busy machine the process may first have to get a processor.
        while processes.stat(pid)[:1] != ["T"] and job.process.poll() is None:
            time.sleep(0.01)
        stopped = rf"rank 1 .* is stopped by a signal \(SIGSTOP, SIGTSTP\): `kill -CONT {pid}` resumes it"
        answer = _judge(job.finish(), None, listed=[stopped, "rank 0 .* waits in MPI_Recv, peer 1"])
        if answer:
            return answer
    return None


def case_cause(session):
    """The rank that the others wait for is named with its current function, as by `fastpath ps --why`."""
    job = _start(session, 2, "await-work", timeout=60)
    _await_ready(job, 2)
    _await_sleep(job, [0])
    tool = os.path.join(session.prefix, "bin", "fastpath")
    listing = subprocess.run([tool, "ps", "--why", str(job.process.pid)], capture_output=True, text=True, timeout=60)
    os.kill(job.process.pid, signal.SIGTERM)
    outcome = job.finish()
    cause = r"rank 0 waits for rank 1 \(process \d+\), which (is in compute|.* the kernel refuses ptrace)"
    found = [re.search(cause, text) for text in (listing.stdout, outcome.err.splitlines()[1])]
    return None if all(found) and found[0][0] == found[1][0] else (f"{found}", listing.stdout + outcome.text())


def case_finalized(session):
    """A receive from a rank that has finalized ends with an error by itself."""
    outcome = _start(session, 2, "finalized", timeout=20).finish()
    return outcome.problem(16, quiet=False) or (None if "rank 1 has left the job" in outcome.err else outcome.err)


def case_other_thread(session):
    """A thread that sleeps outside MPI sends what all wait for: its rank waits too, but that is no deadlock."""
    job = _start(session, 2, "multiple-thread-sends,60")
    answer = _judge(job.finish(), None, listed=[r"rank 1 .* has a thread that waits:\n.* thread \"main\" in MPI_Recv"])
    return answer or _start(session, 2, "multiple-thread-sends,1", timeout=60).finish().problem()


def case_threads(session):
    """Waiting threads are listed, up to four of a rank; the others are counted, and allow no verdict."""
    line = r"mpiexec:     thread (\"main\"|\d+|\d+ \"halo\") in MPI_Recv, peer \d, tag \d+, .*\n"
    both = [rf"rank {rank} .* has 2 threads that wait:\n({line}){{2}}" for rank in (0, 1)]
    both += [r"mpiexec:     thread \"main\" in MPI_Recv, peer 1, tag 15", r"thread \d+ \"halo\" in MPI_Recv, peer 1, tag 20"]
    crowd = [rf"rank {rank} .* has 7 threads that wait:\n({line}){{4}}mpiexec:     and 3 more\n" for rank in (0, 1)]
    # The threads sleep at once, so that all are asleep when the launcher examines them.
    jobs = [(_start(session, 2, how, env={"FASTPATH_WAIT": "sleep"}), verdict, listed)
            for how, verdict, listed in [("multiple-threads", DEADLOCKS[-2][2], both), ("multiple-crowd", None, crowd)]]
    answers = [_judge(job.finish(), verdict, listed=listed) for job, verdict, listed in jobs]
    return next((answer for answer in answers if answer), None)


@sliced
def case_awake(session):
    """A rank that spins or yields reports what it waits for as well, once it has waited for a second."""
    listed = [rf"rank {rank} .* waits in MPI_Recv, peer {1 - rank}, .*, for \d\.\d s" for rank in (0, 1)]
    jobs = [_start(session, 2, "ring", env={"FASTPATH_WAIT": mode}) for mode in ("spin", "yield")]
    answers = [_judge(job.finish(), None, listed=listed) for job in jobs]
    return next((answer for answer in answers if answer), None)


# The ranks wait for each other until their time limit.
for _case in (case_deadlock, case_stopped, case_other_thread, case_threads):
    _case.needs = {"processors": 0}
case_healthy.needs = case_awake.needs = {"processors": 2}
