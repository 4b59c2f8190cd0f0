"""Fatal errors: the report says rank, call, class, cause and what to do, and the exit code is the error's class."""

# What the program is told to do, its exit code, and what the report must have.
ENDS = {
    "rank": (6, ["MPI_Send", "rank 1 of 3", "MPI_ERR_RANK", "cause:", "MPI_COMM_WORLD", "to do:"]),
    "named": (6, ["MPI_Recv", "the one with a name"]),
    "early": (16, ["MPI_Comm_size", "MPI_Init"]),
    "late": (16, ["MPI_Comm_size", "MPI_Finalize"]),
    "abort": (7, ["MPI_Abort", "code 7", "rank 1 of 3"]),
    "call": (5, ["MPI_Comm_call_errhandler", "MPI_ERR_COMM"]),
    "unsupported": (55, ["MPI_Open_port", "not implemented"]),
}


def _make(how, code, texts):
    def case(session):
        outcome = session.mpirun(3, [session.binary("fatal"), how]).finish()
        problem = outcome.problem(code, quiet=False)
        missing = [text for text in texts if text not in outcome.err]
        return problem or (f"the report lacks {missing}: {outcome.err}" if missing else None)

    return case


for _how, (_code, _texts) in ENDS.items():
    globals()[f"case_{_how}"] = _make(_how, _code, _texts)
