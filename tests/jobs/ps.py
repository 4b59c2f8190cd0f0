"""`fastpath ps`: running jobs, the state of their ranks, and why one does not progress."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time

from jobs.verdicts import _await_ready, _await_sleep, _start
from harness import program
from harness.slices import sliced


# The first unexpected messages of rank 1 of `traffic`.
UNASKED = "from rank 0, tag 21, 1024 bytes; from rank 0, tag 21, 1024 bytes; from rank 0, tag 21, 1024 bytes; and 3 more"


def _ps(session, *arguments):
    words = [os.path.join(session.prefix, "bin", "fastpath"), "ps", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def _end(job):
    os.kill(job.process.pid, signal.SIGTERM)
    job.finish()


def _look(session, how):
    """Returns the id of a job of two sleeping ranks, its listing as text and as JSON, and whether it continued."""
    job = _start(session, 2, how, timeout=60, env={"FASTPATH_WAIT": "sleep"})
    _await_ready(job, 2)
    _await_sleep(job, [0, 1])
    number = job.process.pid
    text, found = _ps(session, number).stdout, json.loads(_ps(session, number, "--json").stdout)
    is_running = job.process.poll() is None
    _end(job)
    return number, text, found, is_running


def _tell(session, job, asleep, *options):
    """Listing of a job of two ranks once some of them sleep; then the job is ended."""
    _await_ready(job, 2)
    _await_sleep(job, asleep)
    text = _ps(session, job.process.pid, *options).stdout
    _end(job)
    return text


def case_list(session):
    """Every rank of a job is listed, as text and as JSON, and the job continues."""
    number, text, found, is_running = _look(session, "ring")
    ranks = [rank for entry in found["jobs"] for rank in entry["ranks"]]
    waits = [(wait["call"], wait["peer"], wait["awaited"]) for rank in ranks for wait in rank["waits"]]
    if not is_running:
        return "the job has ended", text
    if waits != [("MPI_Recv", 1, [1]), ("MPI_Recv", 0, [0])]:
        return f"waits {waits}", text
    listed = [f"rank {rank} (process" in text and f"waits in MPI_Recv, peer {1 - rank}" in text for rank in (0, 1)]
    return None if all(listed) and f"job {number} on" in text else ("the list lacks something", text)


def case_why_deadlock(session):
    job = _start(session, 2, "ring", timeout=60, env={"FASTPATH_WAIT": "sleep"})
    text = _tell(session, job, [0, 1], "--why")
    return None if "deadlock: rank 0 waits for rank 1 (MPI_Recv" in text else ("no deadlock is named", text)


def case_why_network(session):
    """Every rank is listed if the ranks wait for each other over the network."""
    ring = ["-n", "1", session.binary("verdicts"), "ring"]
    words = [session.mpiexec, "--timeout", "60", "--virtual-host", "a", *ring, ":", "--virtual-host", "b", *ring]
    job = session.start(words, env={"FASTPATH_WAIT": "sleep"})
    text = _tell(session, job, [0, 1], "--why")
    is_named = "rank 0 waits for rank 1, which waits for rank 0: a deadlock, unless" in text
    return None if is_named else ("no deadlock is named", text)


def case_why_thread(session):
    """Ranks with another thread that will send are not reported as a deadlock."""
    job = _start(session, 2, "multiple-thread-sends,60", timeout=60, env={"FASTPATH_WAIT": "sleep"})
    text = _tell(session, job, [0, 1], "--why")
    return None if "no deadlock is proved, and no single rank delays" in text else ("a wrong verdict", text)


def case_beside(session):
    """A computing thread of a rank with a waiting thread is listed."""
    job = _start(session, 2, "multiple-thread-works", timeout=60, env={"FASTPATH_WAIT": "sleep"})
    text = _tell(session, job, [0, 1])
    return None if re.search(r'has a thread that waits:\n.*"main" in MPI_Recv.*\n +thread \d+ runs\n', text) else ("it is not listed", text)


def case_sleeps(session):
    """A rank that sleeps outside an MPI wait is not reported as running."""
    job = _start(session, 2, "await-sleep", timeout=60)
    text = _tell(session, job, [0])
    return None if "sleeps, but waits for no message" in text else ("it is not listed", text)


def case_why_computes(session):
    """The rank that the others wait for is named, with its current function, unless the kernel refuses that."""
    job = _start(session, 2, "await-work", timeout=60)
    text = _tell(session, job, [0], "--why")
    is_named = "rank 0 waits for rank 1 (process" in text
    has_place = "which is in compute" in text or "the kernel refuses ptrace" in text
    return None if is_named and has_place else ("the rank or its place is not named", text)


def _lines(path, mark):
    """Numbers of the lines of a file with a mark."""
    with open(path, encoding="utf-8") as file:
        return [number for number, line in enumerate(file, 1) if line.rstrip().endswith(mark)]


def case_why_fortran(session):
    """The rank that the others wait for is named with its Fortran procedure, by the source's names, and its line."""
    source = program.source("fortran_places")
    for how, place in (("relax", r"is in solver::relax \({0}:({1})\)"), ("sleep", r", called by places \({0}:({1})\)")):
        job = session.mpirun(2, [session.binary("fortran_places"), how], timeout=60)
        text = _tell(session, job, [0], "--why")
        lines = "|".join(map(str, _lines(source, f"! line of {how}")))
        has_place = re.search(place.format(re.escape(source), lines), text) or "the kernel refuses ptrace" in text
        if "rank 0 waits for rank 1 (process" not in text or not has_place:
            return f"{how}: the rank or its place is not named", text
    return None


# A rank in Python, without mpi4py. Rank 1 computes, or waits for rank 0 too.
PYTHON = """import ctypes, sys
mpi = ctypes.CDLL(sys.argv[1])
rank, value = ctypes.c_int(), ctypes.c_int()
world = ctypes.c_void_p(int(sys.argv[3]))
mpi.MPI_Init(None, None)
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
print("ready", flush=True)
def compute():
    while True:  # line of compute
        pass  # line of compute
def receive(peer):
    datatype = ctypes.c_void_p(int(sys.argv[4]))
    mpi.MPI_Recv(ctypes.byref(value), 1, datatype, peer, 0, world, None)  # line of receive
if rank.value == 1 and sys.argv[2] == "compute":
    compute()  # line of main
receive(1 - rank.value)  # line of main
"""


def _handles(session):
    """Values of MPI_COMM_WORLD and MPI_INT."""
    text = "#include <mpi.h>\nworld (unsigned long)MPI_COMM_WORLD\nint (unsigned long)MPI_INT\n"
    words = [session.mpicc, "-E", "-P", "-x", "c", "-"]
    text = subprocess.run(words, input=text, capture_output=True, text=True, check=True).stdout
    numbers = [re.findall(r"\b(?:0x[0-9a-fA-F]+|\d+)\b", line)[-1] for line in text.splitlines()[-2:]]
    return [str(int(number, 0)) for number in numbers]


def case_why_python(session):
    """Python frames of a rank that computes, and of ranks in a deadlock, are named with file and line."""
    script = os.path.join(session.folder, "rank.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(PYTHON)
    words = [sys.executable, script, os.path.join(session.prefix, "lib", "libmpi_abi.so.1")]

    def frames(function):
        first, last = _lines(script, f"# line of {function}"), _lines(script, "# line of main")
        return rf"is in {function} \({re.escape(script)}:({'|'.join(map(str, first))})\), " \
               rf"called by <module> \({re.escape(script)}:({'|'.join(map(str, last))})\)"

    expected = {"compute": [rf"rank 0 waits for rank 1 \(process \d+\), which {frames('compute')}; its compiled code is in "],
                "receive": [rf"^ *rank {rank} {frames('receive')}$" for rank in (0, 1)]}
    for how, texts in expected.items():
        job = session.mpirun(2, [*words, how, *_handles(session)], timeout=60, env={"FASTPATH_WAIT": "sleep"})
        text = _tell(session, job, [0] if how == "compute" else [0, 1], "--why")
        if "the kernel refuses ptrace" not in text and not all(re.search(one, text, re.MULTILINE) for one in texts):
            return f"{how}: the frames are not named", text
    return None


@sliced
def case_operations(session):
    """A wait for an operation is listed with the call that started it, its communicator, and the awaited rank."""
    calls = {"work-iallreduce": "MPI_Iallreduce", "work-barrier-init": "MPI_Barrier_init", "work-parts-init": "MPI_Precv_init"}
    for how, call in calls.items():
        job = _start(session, 2, how, timeout=60, env={"FASTPATH_WAIT": "sleep"})
        text = _tell(session, job, [1], "--why")
        is_named = f"waits in MPI_Wait for {call}, peer 0, communicator MPI_COMM_WORLD, " in text
        if not is_named or "rank 1 waits for rank 0 (process" not in text:
            return f"{call}: its peer or its cause is not named", text
    return None


def case_given_up(session):
    """A rank in MPI_Finalize whose messages are not yet received waits for their receivers."""
    job = _start(session, 2, "given-up", timeout=60, env={"FASTPATH_WAIT": "sleep"})
    text = _tell(session, job, [1], "--why")
    is_named = "waits in MPI_Finalize" in text and "rank 1 waits for rank 0 (process" in text
    return None if is_named else ("its cause is not named", text)


def case_traffic(session):
    """Messages sent by protocol, and queue contents, are those of a known program, and no process is stopped for it."""
    _, text, found, is_running = _look(session, "traffic")
    first, second = [rank["traffic"] for rank in found["jobs"][0]["ranks"]]
    if not is_running:
        return "the job has ended", text
    # Rank 0 has sent 5 messages of 1 KiB, 4 of them unexpected, and starts two of 1 MiB.
    eager, announced = first["sent"]["eager_by_memory"], first["sent"]["rendezvous_by_memory"]
    if (eager["messages"], eager["bytes"]) != (5, 5 << 10) or (announced["messages"], announced["bytes"]) != (2, 2 << 20):
        return f"sent {first['sent']}", text
    if (first["queues"]["sends"], first["queues"]["send_bytes"]) != (2, 2 << 20):
        return f"queues of rank 0: {first['queues']}", text
    # Rank 1 has 4 + 2 unexpected messages, and waits for one that is never sent; 3 of its receives are never matched.
    if (second["queues"]["unexpected"], second["queues"]["receives"]) != (6, 4):
        return f"queues of rank 1: {second['queues']}", text
    if first["ring_slots_sent"] < 7 + 100 or second["ring_slots_waiting"] != 0:
        return f"rings {first}, {second}", text
    lines = ["5 messages (5 KiB) eager", "2 messages (2.0 MiB) rendezvous", "6 unexpected messages, 4 receives",
             f"the rank has 6 unexpected messages ({UNASKED})"]
    return None if all(line in text for line in lines) else ("the list lacks something", text)


def case_checked(session):
    """With FASTPATH_CHECK, the bytes of a wait and of unexpected messages are those of the program."""
    checks = {"FASTPATH_WAIT": "sleep", "FASTPATH_CHECK": "1"}
    text = _tell(session, _start(session, 2, "traffic", timeout=60, env=checks), [0, 1], "--why")
    if UNASKED not in text:
        return "the messages are not named", text
    for how, ranks, asleep in (("barrier-work", 2, [0]), ("work-iallreduce", 2, [1])):
        text = _tell(session, _start(session, ranks, how, timeout=60, env=checks), asleep)
        if not re.search(r"waits in MPI_\w+.*, peer \d, communicator MPI_COMM_WORLD, 0 bytes", text):
            return f"{how}: the bytes are not those of the program", text
    return None


def case_quick(session):
    """A hang of 200 ranks: `fastpath ps --why`, and mpiexec at SIGTERM, name the cause in the first lines, above groups
    of ranks. `ps` takes at most 1 s of CPU time, and `--ranks` lists every rank."""
    count = 200
    job = _start(session, count, "ring", timeout=120, env={"FASTPATH_WAIT": "sleep"})
    _await_ready(job, count)
    _await_sleep(job, range(count))
    # CPU time of ended children, which excludes the job's processes; wall time would include other load.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = _ps(session, job.process.pid, "--why").stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    every = _ps(session, job.process.pid, "--ranks").stdout
    os.kill(job.process.pid, signal.SIGTERM)
    outcome = job.finish()
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"    {count} ranks in {took:.2f} s of a processor")
    if took > 1:
        return f"it took {took:.2f} s of a processor"
    for text in (found, outcome.err):
        # At 80 columns, a line takes several of a terminal.
        lines = [line[at:at + 80] for line in text.splitlines() for at in range(0, len(line), 80)]
        cause = next((n for n, line in enumerate(lines) if "deadlock: rank 0 waits for rank 1 (MPI_Recv" in line), None)
        if cause not in (1, 2) or len(lines) > 20 or f"{count} ranks (0-{count - 1}), each waits in MPI_Recv" not in text:
            return f"cause in line {cause} of {len(lines)}", text
    listed = [f"rank {rank} (process" in every for rank in range(count)]
    return None if all(listed) else ("the list lacks a rank", every)


def case_unknown(session):
    """An unknown job is an error, and so is an unknown option."""
    outcome = _ps(session, 1)
    if outcome.returncode != 1 or "this user has no job 1" not in outcome.stderr:
        return f"exit code {outcome.returncode}", outcome.stderr
    return None if _ps(session, "--wy").returncode == 2 else "an unknown option is taken"


# This case measures processor time.
case_quick.needs = {"alone": True}
