"""Ranks exhaust memory: an error with the cause, and no process is killed."""

import os

from harness import job

LIMIT = 600 << 20  # bytes of the control group
NO_MEM = 39  # MPI_ERR_NO_MEM


def _own_group():
    """Folder of this process's control group if memory is limited, and the file of the limit; None if there is none."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    for _, controllers, path in lines:
        if "memory" in controllers.split(","):
            return "/sys/fs/cgroup/memory" + path, "memory.limit_in_bytes"
    for number, _, path in lines:
        if number == "0":
            return "/sys/fs/cgroup" + path, "memory.max"
    return None


def case_everything_is_taken(session):
    own = _own_group()
    group = own and os.path.join(own[0], f"mpi-test-{os.getpid()}")
    try:
        os.mkdir(group)
    except (OSError, TypeError) as error:
        session.skip("memory_limit.everything_is_taken", f"no control group can be made: {error}")
        return None
    try:
        try:
            with open(os.path.join(group, own[1]), "w", encoding="utf-8") as file:
                file.write(str(LIMIT))
        except OSError as error:
            session.skip("memory_limit.everything_is_taken", f"a control group cannot limit memory: {error}")
            return None
        enter = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', os.path.join(group, "cgroup.procs")]
        program = [session.binary("memory"), "everything"]
        return job.run([*enter, session.mpiexec, "-n", "4", "--timeout", "60", *program]).problem()
    finally:
        os.rmdir(group)


def _flood(session, env):
    outcome = job.run([session.mpiexec, "-n", "2", "--timeout", "60", session.binary("memory_unexpected")], env=env)
    problem = outcome.problem(code=NO_MEM, quiet=False)
    texts = ["fatal error in MPI_Recv on rank 1", "MPI_ERR_NO_MEM", "unexpected messages of", "`ulimit -v`", "FASTPATH_UNEXPECTED_MAX"]
    missing = [text for text in texts if text not in outcome.err]
    return problem or (f"the report lacks {missing}: {outcome.err}" if missing else None)


def case_unexpected_messages_take_it(session):
    return _flood(session, None)


def case_unexpected_messages_take_it_over_tcp(session):
    return _flood(session, {"FASTPATH_TRANSPORTS": "tcp"})
