"""The report of a crash inside an MPI call names the call; one outside MPI names none. A program's own handler stays
installed."""

import re
import signal

# Argument of the program, and the call in the report (None: none).
CRASHES = [
    (["send", "8"], "MPI_Send"), (["send", "400"], "MPI_Send"), (["send", "20000"], "MPI_Send"),
    (["send", "1000000"], "MPI_Send"), (["isend", "100"], "MPI_Isend"),
    (["recv", "8"], "MPI_Recv"), (["recv", "400"], "MPI_Recv"), (["recv", "20000"], "MPI_Recv"),
    (["bcast", "100"], "MPI_Bcast"), (["waitall"], "MPI_Waitall"), (["operation"], "MPI_Reduce_local"),
    (["size"], "MPI_Type_get_extent"),
    (["own"], None), (["own-libc", "100"], None), (["own-overflow"], None), (["own-sent"], None),
]


def _look(session, words, call, env):
    outcome = session.mpirun(2, [session.binary("crash"), *words], env=env).finish()
    problem = outcome.problem(128 + signal.SIGSEGV, quiet=False)
    if problem:
        return f"{' '.join(words)}: {problem}", outcome.text()
    lines = outcome.err.splitlines()
    named = [line for line in lines if line.startswith("mpiexec:   in MPI_")]
    wanted = [f"mpiexec:   in {call},"] if call else []
    right = len(named) == len(wanted) and all(line.startswith(want) for line, want in zip(named, wanted))
    if not right or "rank 1 on" not in lines[0] or "SIGSEGV" not in lines[0]:
        return f"{' '.join(words)}: the report does not say {call}", outcome.text()
    return None


def case_thread(session):
    """With several threads the crashing one is named, inside MPI and outside."""
    wanted = {
        "thread-send": r"mpiexec:   in MPI_Send, touching address 0x[0-9a-f]+, in thread \d+ \"wor\\nker\"",
        "thread-own": r"mpiexec:   outside of MPI, touching address 0x10, in thread \d+ \"wor\\nker\"",
        "multiple-own": r"mpiexec:   outside of MPI, touching address 0x10, in thread \"main\"",
        "multiple-send": r"mpiexec:   in MPI_Send, touching address 0x[0-9a-f]+, in thread \"main\"",
    }
    for how, line in wanted.items():
        outcome = session.mpirun(2, [session.binary("crash"), how, "400"]).finish()
        problem = outcome.problem(128 + signal.SIGSEGV, quiet=False)
        if not problem and not any(re.fullmatch(line, said) for said in outcome.err.splitlines()):
            problem = f"the report does not say {line}"
        if problem:
            return f"{how}: {problem}", outcome.text()
    return None


def case_call(session):
    for words, call in CRASHES:
        for env in [{}, {"FASTPATH_DISABLE": "sendi,recvi,directed,immediate-datatype"}]:
            answer = _look(session, words, call, env)
            if answer:
                return answer
    return None


def case_handled(session):
    outcome = session.mpirun(2, [session.binary("crash"), "handled"]).finish()
    return outcome.problem(42, quiet=False)
