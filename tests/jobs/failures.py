"""Jobs that tolerate failures (`--with-ft ulfm`): what calls return after the death of a rank, repair by revocation,
agreement, shrinking and spawning, exit codes, and kills at random moments of a task farm and a stencil."""

import os
import signal
import tempfile
import time

from harness import engines, processes
from harness.host_engines import lacks_hosts, run, three_hosts
from harness.seeds import repeat

# The jobs of this file have several ranks, which compute or spin.
NEEDS = {"processors": 2}

OPTIONS = ["--with-ft", "ulfm"]
DIED = "mpiexec: rank "
GOES_ON = "mpiexec:   the other ranks continue (FASTPATH_FT=1)"
WAYS = [{}, {"FASTPATH_WAIT": "sleep"}, {"FASTPATH_DISABLE": "sendi,recvi,direct"}, {"FASTPATH_TRANSPORTS": "tcp"},
        {"FASTPATH_COLL": "barrier:lines,bcast:lines,allreduce:lines"}]


def _look(session, ranks, words, env=None, deaths=1, code=0):
    """Runs a case of failures.c; returns what is wrong with it."""
    outcome = session.mpirun(ranks, [session.binary("failures"), *words], options=OPTIONS, env=env or {}).finish()
    problem = outcome.problem(code, quiet=False)
    if problem:
        return f"{ranks} ranks, {words[0]}: {problem}", outcome.text()
    lines = outcome.err.splitlines()
    died = [line for line in lines if line.startswith(DIED) and "SIGKILL" in line]
    others = [line for line in lines if line not in died and line != GOES_ON]
    if len(died) != deaths or others or lines.count(GOES_ON) != deaths:
        return f"{ranks} ranks, {words[0]}: {deaths} deaths and nothing else are to be reported", outcome.text()
    return None


def _all(session, words, deaths=lambda ranks: 1, ranks=(2, 3, 4, 8)):
    for number in ranks:
        for env in WAYS if number == 4 else WAYS[:1]:
            answer = _look(session, number, words, env, deaths(number))
            if answer:
                return answer
    return None


def case_messages(session):
    return _all(session, ["messages"])


def case_any_source(session):
    return _all(session, ["any_source"])


def case_collectives(session):
    return _all(session, ["collectives"])


def case_amid_collectives(session):
    return _all(session, ["amid_collectives"])


def case_revoked(session):
    return _all(session, ["revoked"], lambda ranks: 0)


def case_agreed(session):
    return _all(session, ["agreed"], lambda ranks: max(1, ranks - 2))


def case_agreed_then_finalized(session):
    """MPI_Finalize waits for the other members of an agreement, and not for disconnected ones."""
    for ranks, name in ((3, "finalize_agreed"), (1, "disconnect_agreed")):
        for env in WAYS:
            with tempfile.TemporaryDirectory() as folder:
                words = [session.binary(name), os.path.join(folder, "made")]
                outcome = session.mpirun(ranks, words, options=OPTIONS, env=env).finish()
            if problem := outcome.problem(0):
                return f"{name}, {env}: {problem}", outcome.text()
    return None


def case_windows_files(session):
    with tempfile.TemporaryDirectory() as folder:
        return _all(session, ["windows_files", os.path.join(folder, "file")])


def case_respawned(session):
    return _all(session, ["respawned"], lambda ranks: 6, (2, 4))


def case_codes(session):
    """The exit code is 0 if a rank has ended well, also after deaths; otherwise that of the first failure. An exit code
    after MPI_Finalize, and MPI_Abort, count as without the option. Without it, the first death ends the job."""
    for script, ranks, options, code in [
            ('[ $FASTPATH_RANK = 1 ] && kill -9 $$; exit 0', 3, OPTIONS, 0),
            ('[ $FASTPATH_RANK = 1 ] && exit 3; exit 0', 3, ["--enable-recovery"], 0),
            ('[ $FASTPATH_RANK = 1 ] && exit 3; exit 0', 3, ["-disable-auto-cleanup"], 0),
            ('exit 5', 2, OPTIONS, 5),
            ('kill -9 $$', 2, OPTIONS, 128 + signal.SIGKILL),
            ('[ $FASTPATH_RANK = 1 ] && exit 3; sleep 100', 2, [*OPTIONS, "--disable-recovery"], 3),
            ('[ $FASTPATH_RANK = 1 ] && exit 3; sleep 100', 2, ["--with-ft", "none"], 3)]:
        outcome = session.mpirun(ranks, ["sh", "-c", script], options=options).finish()
        problem = outcome.problem(code, quiet=False)
        if problem:
            return f"{script}: {problem}", outcome.text()
    outcome = session.mpirun(2, ["true"], options=["--with-ft", "maybe"]).finish()
    problem = outcome.problem(2, quiet=False)
    return (problem, outcome.text()) if problem else None


def case_fatal(session):
    """With the default error handler a failure ends the job, and MPI_Abort does so too."""
    for which in ["fatal", "abort"]:
        outcome = session.mpirun(3, [session.binary("failures"), which], options=OPTIONS).finish()
        problem = outcome.problem({"fatal": 128 + signal.SIGKILL, "abort": 4}[which], quiet=False)
        if problem:
            return f"{which}: {problem}", outcome.text()
    return None


def case_other_launcher(session):
    """Ranks that Hydra has started watch each other. The shells between them keep Hydra from seeing a death: of MPICH
    5.0.2 it would end the job in spite of its option."""
    try:
        hydra = engines.Hydra()
    except OSError as error:
        session.skip("failures.other_launcher", error)
        return None
    script = "trap '' USR1; \"$@\"; code=$?; [ $code = 137 ] && code=0; exit $code"
    for case in ["messages", "collectives", "agreed"]:
        words = ["sh", "-c", script, "sh", session.binary("failures"), case]
        job = session.start([hydra.mpiexec, "-disable-auto-cleanup", "-n", "4", *words], env={"FASTPATH_FT": "1"})
        outcome = job.finish()
        problem = outcome.problem(0, quiet=False)
        if not problem and outcome.out.count(" ok") != (2 if case == "agreed" else 3):
            problem = "a survivor has not ended well"
        if problem:
            return f"{case}: {problem}", outcome.text()
    return None


def case_hosts(session):
    """On two hosts, through Hydra: the launchers report a death to each other."""
    if reason := lacks_hosts():
        session.skip("failures.hosts", reason)
        return None
    with three_hosts(session) as (_, engine):
        for case in ["messages", "any_source", "collectives", "amid_collectives", "revoked", "agreed", "respawned"]:
            outcome = run(session, engine, 2, [session.binary("failures"), case], timeout=40, options=OPTIONS)
            problem = outcome.problem(0, quiet=False)
            if problem:
                return f"{case}: {problem}", outcome.text()
    return None


def case_reported(session):
    """A report of waiting ranks shows the dead ones, and that a communicator is revoked."""
    outcome = session.mpirun(3, [session.binary("failures"), "stuck"], options=OPTIONS, timeout=3).finish()
    problem = outcome.problem(124, quiet=False)
    for wanted in ["waits in MPIX_Comm_agree", "MPI_Comm_dup, revoked", "was ended by signal 9"]:
        if not problem and wanted not in outcome.err:
            problem = f"{wanted!r} is not reported"
    return (problem, outcome.text()) if problem else None


def case_killed(session):
    """Ranks of a program that repairs its communicator are killed at random moments, until one is left. Its sums are
    right all the time."""
    def one(chance, seed):
        ranks = chance.choice([3, 4, 8])
        job = session.mpirun(ranks, [session.binary("survivor"), str(seed)], options=OPTIONS,
                             env=chance.choice(WAYS))
        for _ in range(ranks - 1):
            time.sleep(chance.random() * chance.choice([0.01, 0.1, 0.3]))  # a moment, not a state
            living = [pid for pid, _ in job.processes() if processes.rank(pid) is not None]
            if len(living) > 1:
                os.kill(chance.choice(living), signal.SIGKILL)
        time.sleep(chance.random() * 0.1)
        job.process.send_signal(signal.SIGUSR1)  # ends the program
        outcome = job.finish()
        problem = outcome.problem(0, quiet=False)
        if not problem and "wrong" in outcome.out + outcome.err:
            problem = "wrong data"
        return (problem, outcome.text()) if problem else None

    return repeat(session, 8, 200, one)
