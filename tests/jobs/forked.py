"""A forked child of a rank calls MPI, with fatal errors: the child ends with a report, and the job continues."""

CHILD = "a process forked by rank 0, host "
CAUSE = "cause:        this call was made by a forked child process, which is not a rank: the parent process is rank 0, process "

# The child's call, and expected texts of its report.
CALLS = {
    "send": ["fatal error in MPI_Send on " + CHILD, CAUSE],
    "rank": ["fatal error in MPI_Comm_rank on " + CHILD, CAUSE],
    "finalize": ["fatal error in MPI_Finalize on " + CHILD, CAUSE],
    "session": ["fatal error in MPI_Session_init on " + CHILD, CAUSE],
    "abort": ["fatal error in MPI_Abort on " + CHILD, CAUSE],
    "exit": [],
}


def _make(how, texts):
    def case(session):
        for env in ({}, {"FASTPATH_TRANSPORTS": "tcp"}):
            job = session.mpirun(2, [session.binary("forked"), how], env=env)
            outcome = job.finish()
            problem = outcome.problem(quiet=not texts)
            missing = [text for text in texts if text not in outcome.err]
            if problem or missing:
                return problem or f"the report lacks {missing}: {outcome.err}", outcome.text()
        return None

    return case


for _how, _texts in CALLS.items():
    globals()[f"case_{_how}"] = _make(_how, _texts)
