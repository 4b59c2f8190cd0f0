"""Jobs connected by ports and sockets, and processes spawned without our launcher."""

import os
import shutil
import signal
import socket
import tempfile
import time


def _launch(session, ranks, words, **more):
    """A job of `ranks` ranks; 0: one process without a launcher."""
    if ranks == 0:
        return session.start([*words], **more)
    return session.mpirun(ranks, [*words], **more)


def _pair(session, servers, callers, words, env=None, codes=(0, 0)):
    """Two jobs of that program: what is wrong with one of them, and the output of both."""
    folder = tempfile.mkdtemp(prefix="mpi-connected-")
    path, program = os.path.join(folder, "name"), session.binary("two_jobs")
    try:
        jobs = [
            _launch(session, servers, [program, "serve", path, *words], env=env),
            _launch(session, callers, [program, "call", path, *words], env=env),
        ]
        ends = [job.finish() for job in jobs]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for end, code, who in zip(ends, codes, ("the side with the port", "the other side")):
        if problem := end.problem(code, quiet=code == 0):
            return f"{who}: {problem}", "".join(one.text() for one in ends)
    return None


def case_jobs(session):
    """Jobs of several sizes, also of one process without a launcher, twice over one port."""
    for servers, callers in ((2, 2), (1, 3), (0, 2), (3, 0), (0, 0)):
        env = {"TWO_JOBS_PUBLISHED": "1"} if servers else None
        if found := _pair(session, servers, callers, ["all", "2"], env=env):
            return f"{servers} and {callers} ranks: {found[0]}", found[1]
    return None


def case_over_tcp(session):
    """Ranks of each job use the same connections to reach each other."""
    return _pair(session, 2, 2, ["all", "1"], env={"FASTPATH_TRANSPORTS": "tcp"})


def case_progress_thread(session):
    """With a progress thread, which the network needs."""
    return _pair(session, 2, 1, ["all", "1"], env={"FASTPATH_PROGRESS": "thread"})


def case_death(session):
    """Only the job that dies ends: the other one gets an error and continues, also without earlier messages."""
    for how in ("dies", "vanishes"):
        if found := _pair(session, 2, 1, [how], codes=(0, 137)):
            return f"{how}: {found[0]}", found[1]
    return None


def case_join(session):
    """MPI_Comm_join of processes of two jobs; afterwards the socket belongs to the program again."""
    folder = tempfile.mkdtemp(prefix="mpi-connected-")
    try:
        words = [session.binary("two_jobs"), "join", os.path.join(folder, "socket")]
        jobs = [session.mpirun(1, words), session.start(words)]
        ends = [job.finish() for job in jobs]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    problems = [end.problem() for end in ends if end.problem()]
    return (problems[0], "".join(end.text() for end in ends)) if problems else None


def case_join_that_cannot_be(session):
    """MPI_Comm_join with a process that no other job can reach gives no communicator, and both sides report the
    reason."""
    folder = tempfile.mkdtemp(prefix="mpi-connected-")
    try:
        words = [session.binary("two_jobs"), "join", os.path.join(folder, "socket"), "null"]
        jobs = [session.start(words, env={"FASTPATH_TRANSPORTS": "shm"}), session.start(words)]
        ends = [job.finish() for job in jobs]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for end, why in zip(ends, ("FASTPATH_TRANSPORTS", "a process of the other job cannot be reached")):
        said = "MPI_Comm_join returns MPI_COMM_NULL" in end.err and why in end.err
        if problem := end.problem(quiet=False) or (None if said else "the reason is not reported"):
            return problem, "".join(one.text() for one in ends)
    return None


def case_late(session):
    """A call with a timeout at a port returns an error, on either side; the next call connects."""
    for servers, callers in ((1, 1), (2, 0)):
        if found := _pair(session, servers, callers, ["late"]):
            return f"{servers} and {callers} ranks: {found[0]}", found[1]
    return None


def case_strangers(session):
    """A caller that does not know a port's key is rejected, also if it sends nothing for long, or too much. Callers
    with the key still connect."""
    folder = tempfile.mkdtemp(prefix="mpi-connected-")
    path, program = os.path.join(folder, "name"), session.binary("two_jobs")
    callers = []
    try:
        server = session.mpirun(1, [program, "serve", path, "all", "1"])
        while not os.path.exists(path) and server.process.poll() is None:
            time.sleep(0.01)
        with open(path, encoding="ascii") as file:
            _, _, _, _, _, port, addresses = file.read().split(":", 6)
        for number in range(70):
            caller = socket.create_connection((addresses.split(",", maxsplit=1)[0], int(port)), timeout=10)
            caller.setblocking(False)
            try:
                caller.send(b"" if number % 2 else b"x" * 300)
            except OSError:
                pass  # the connection was closed
            callers.append(caller)
        wrong = session.start([program, "call", path, "wrong"]).finish()
        right = session.start([program, "call", path, "all", "1"]).finish()
        ends = [wrong, right, server.finish()]
    finally:
        for caller in callers:
            caller.close()
        shutil.rmtree(folder, ignore_errors=True)
    for end, who in zip(ends, ("a wrong key", "the right one", "the port's side")):
        if problem := end.problem():
            return f"{who}: {problem}", "".join(one.text() for one in ends)
    return None


def _launchers():
    """The sockets at which launchers accept requests."""
    with open("/proc/net/unix", encoding="ascii") as file:
        return {line.split()[-1] for line in file if "@fastpath-" in line}


def case_stopped(session):
    """A name is looked up in this user's other jobs, one of which is stopped: its launcher is not waited for."""
    before = _launchers()
    stopped = session.mpirun(1, ["sleep", "60"])
    try:
        while not _launchers() - before and stopped.process.poll() is None:
            time.sleep(0.01)
        stopped.process.send_signal(signal.SIGSTOP)
        outcome = session.mpirun(2, [session.binary("port_basic")]).finish()
        problem = outcome.problem()
        return (problem, outcome.text()) if problem else None
    finally:
        stopped.process.send_signal(signal.SIGCONT)
        stopped.process.send_signal(signal.SIGTERM)
        stopped.finish()


def case_spawned_alone(session):
    """A process without a launcher spawns: its children end with it. A missing program is reported by name."""
    running = session.start([session.binary("spawn_basic")])
    # The launchers of the children end a moment after the process.
    running.await_end(10)
    outcome = running.finish()
    if problem := outcome.problem():
        return problem, outcome.text()
    missing = session.start([session.binary("two_jobs"), "missing"]).finish()
    problem = missing.problem(quiet=False) or (None if "/missing/program" in missing.err else "it is not named")
    return (problem, missing.text()) if problem else None


def case_ports_that_are_none(session):
    """A wrong FASTPATH_PORTS is an error of MPI_Open_port, and not of a later connection."""
    outcome = session.mpirun(1, [session.binary("spawn_ends"), "accept"], env={"FASTPATH_PORTS": "abc"}).finish()
    missing = [text for text in ("MPI_Open_port", 'FASTPATH_PORTS="abc"') if text not in outcome.err]
    if outcome.code in (None, 0) or outcome.left or missing:
        return f"exit code {outcome.code}, the report lacks {missing}", outcome.text()
    return None


def case_listed(session):
    """A report of a job distinguishes ranks of another job from those of other nodes."""
    # The job that reaches its time limit first also ends the other one.
    for limits in ((5, 60), (60, 5)):
        folder = tempfile.mkdtemp(prefix="mpi-connected-")
        path, program = os.path.join(folder, "name"), session.binary("two_jobs")
        try:
            waits = session.mpirun(1, [program, "serve", path, "hangs"], timeout=limits[0])
            comes = session.mpirun(1, [program, "call", path, "hangs"], timeout=limits[1])
            ends = [waits.finish(), comes.finish()]
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        first = ends[limits.index(5)]
        if first.code != 124 or "rank 1 is in another job, on" not in first.err:
            return "it is not reported", "".join(end.text() for end in ends)
    return None


# Both jobs wait until their time limit.
case_listed.needs = {"processors": 0}
