"""Fatal errors: the report has rank, call, class, cause and remedy, and the exit code is the error's class."""

# Argument of the program, its exit code, and expected texts of the report.
ENDS = {
    "rank": (6, ["MPI_Send", "rank 1 of 3", "MPI_ERR_RANK", "cause:", "MPI_COMM_WORLD", "to do:"]),
    "named": (6, ["MPI_Recv", "the one with a name"]),
    "early": (16, ["MPI_Comm_size", "MPI_Init", " of 3, host", "MPI_ERR_OTHER, other error"]),
    "early_type": (16, ["MPI_Type_size", "MPI_Init", " of 3, host", "MPI_ERR_OTHER, other error"]),
    "late_type": (16, ["MPI_Type_size", "MPI_Finalize", " of 3, host"]),
    "late": (16, ["MPI_Comm_size", "MPI_Finalize", " of 3, host"]),
    "session": (5, ["MPI_Comm_size", "invalid communicator handle", " of 3, host", "MPI_ERR_COMM"]),
    "late_session": (16, ["MPI_Session_init", "this process has left its job", " of 3, host"]),
    "overlap": (5, ["MPI_Intercomm_create", "rank 1 of MPI_COMM_WORLD is in both groups", "rank 1 of 3"]),
    "root": (8, ["MPI_Bcast", "the root 1 is not a rank of the remote group (0 to 0)", "1 and 1 rank, this process"]),
    "init": (8, ["MPI_Bcast_init", "the root 3 is not a rank of the communicator (0 to 2)", "rank 1 of 3"]),
    "ready": (7, ["MPI_Pready", "not active: call MPI_Start first", "rank 1 of 3"]),
    "range": (13, ["MPI_Pready_range", "begins at 5, but ends at 2", "pass the lower partition first"]),
    **{how: (16, ["MPI_Finalize", "MPI_Ibarrier is under way and can never complete: rank ", "rank 1 of 3",
                  "to do:        complete each nonblocking collective call"])
       for how in ("left", "left_seen")},
    **{f"unjoined{what}": (16, ["MPI_Finalize", f"{call} is under way and can never complete: rank ", " of 3, host",
                               " is in MPI_Finalize and has not made this call", "communicator: "])
       for what, call in [("", "MPI_Ibarrier"), ("_send", "MPI_Ibcast"), ("_start", "")]},
    "abort": (7, ["MPI_Abort", "code 7", "rank 1 of 3"]),
    "free": (5, ["MPI_Comm_free", "cannot be freed", "to do:        leave out this call"]),
    "twice": (7, ["MPI_Start", "is active already", "to do:        complete the request first"]),
    "irecv": (7, ["MPI_Start", "the request is not persistent", "to do:        start only requests of calls such as MPI_Send_init"]),
    "group": (6, ["MPI_Group_incl", "rank 0 is given twice", "to do:        give each rank once\n"]),
    "scan": (5, ["MPI_Scan", "is an intercommunicator", "to do:        pass an intracommunicator\n"]),
    "call": (5, ["MPI_Comm_call_errhandler", "MPI_ERR_COMM"]),
}


def _make(how, code, texts):
    def case(session):
        return _judge(session.mpirun(3, [session.binary("fatal"), how]).finish(), code, texts)

    return case


def _judge(outcome, code, texts):
    problem = outcome.problem(code, quiet=False)
    missing = [text for text in texts if text not in outcome.err]
    return problem or (f"the report lacks {missing}: {outcome.err}" if missing else None)


def case_transports(session):
    """The report of an error before a communicator exists has the rank too."""
    job = session.mpirun(2, [session.binary("fatal")], env={"FASTPATH_TRANSPORTS": "cma"})
    return _judge(job.finish(), 16, ["MPI_Init", " of 2, host", "add shm"])


def case_adapter(session):
    """A missing adapter: the command that examines it is named."""
    env = {"FASTPATH_TRANSPORTS": "rc", "FASTPATH_DEVICE": "no_such_9"}
    job = session.mpirun(2, [session.binary("fatal")], env=env)
    return _judge(job.finish(), 16, ["MPI_Init", "only rc, which cannot be used", "to do:", "fastpath doctor"])


def case_hang(session):
    """What each rank waits for at the time limit, with the communicator's name."""
    job = session.mpirun(3, [session.binary("fatal"), "hang"], timeout=6)
    names = ["MPI_COMM_WORLD", "made by MPI_Comm_split", "halo exchange"]
    wanted = [f"peer {(i + 1) % 3}, tag 3, communicator {name}, 4 bytes" for i, name in enumerate(names)]
    return _judge(job.finish(), 124, ["deadlock: rank 0 waits for rank 1 ", *wanted])


# This case waits until its time limit.
case_hang.needs = {"processors": 0}
for _how, (_code, _texts) in ENDS.items():
    globals()[f"case_{_how}"] = _make(_how, _code, _texts)
