"""FASTPATH_CHECK=1: the report about a program with a mistake, and no report about one without."""

import re

PLACE = r"mistakes\+0x[0-9a-f]+"
FLOATS = rf"receives 10 MPI_FLOAT, but the message from rank 0 with tag 5 holds 10 MPI_INT, sent by MPI_\w+ at {PLACE}"
NEVER = r"fastpath: rank 1: never received: "

# Argument of the program, lines of the report, and exit code. Ranks: 2.
MISTAKES = {
    "types": ([rf"rank 1: MPI_Recv at {PLACE} {FLOATS}"], 0),
    "types-isend": ([rf"rank 1: MPI_Recv at {PLACE} {FLOATS}"], 0),
    "types-bsend": ([rf"rank 1: MPI_Recv at {PLACE} {FLOATS}"], 0),
    "types-start": ([rf"rank 1: MPI_Recv at {PLACE} {FLOATS}"], 0),
    "types-irecv": ([rf"rank 1: MPI_Irecv at {PLACE} {FLOATS}"], 0),
    "types-mrecv": ([rf"rank 1: MPI_Mrecv at {PLACE} {FLOATS}"], 0),
    "types-large": ([rf"MPI_Recv at {PLACE} receives 131072 MPI_INT64_T, but .* holds 131072 MPI_DOUBLE, sent by"], 0),
    "types-struct": ([r"receives elements of particle, but .* holds 6 elements of several types, sent by MPI_Send"], 0),
    "left-irecv": ([rf"rank 1: MPI_Irecv at {PLACE} was never completed: the receive waits for up to 40 bytes from rank 0 with "
                    r"tag 7 in MPI_COMM_WORLD"], 0),
    "left-any": ([r"the receive waits for up to 40 bytes from any rank with any tag in MPI_COMM_WORLD"], 0),
    "left-done": ([rf"MPI_Irecv at {PLACE} was never completed: the message has arrived, but "], 0),
    "left-short": ([rf"{NEVER}a message \(tag 7, 40 bytes\) from rank 0 in MPI_COMM_WORLD, sent by MPI_Send at {PLACE}"], 0),
    "left-large": ([rf"{NEVER}a message \(tag 7, 1048576 bytes\) from rank 0 in .*, sent by MPI_Isend at {PLACE}"], 0),
    "left-many": ([rf"{NEVER}1000 messages \(the first: tag 0, 40 bytes\) from rank 0 in .*, sent by MPI_Send at {PLACE}"], 0),
    "left-late": ([r"rank 1 has left the job \(finalized or dead\) and cannot receive the message with tag 7 of 40 bytes"], 16),
    "left-mprobe": ([r"rank 1: no MPI_Mrecv followed the probe of the message from rank 0 with tag 1 in .*, 12 bytes"], 0),
    "left-ibarrier": ([rf"rank {rank}: MPI_Ibarrier at {PLACE} was never completed: the operation is .* in MPI_COMM_WORLD" for rank in (0, 1)], 0),
    "left-started": ([rf"rank {rank}: MPI_Barrier_init at {PLACE} was never completed: " for rank in (0, 1)], 0),
    "left-inactive": ([], 0),
    "left-idup": ([rf"rank {rank}: MPI_Comm_idup at {PLACE} was never completed: the operation is complete, but the program" for rank in (0, 1)], 0),
    "left-psend": ([rf"rank 0: MPI_Psend_init at {PLACE} was never completed: 0 of the 1 partitions are ready to "
                    r"be sent to rank 1 with tag 7 in MPI_COMM_WORLD"], 0),
    "part-types": ([rf"rank 1: MPI_Precv_init at {PLACE} receives 20 MPI_FLOAT, but the message from rank 0 with tag 7 "
                    r"holds 20 MPI_INT, sent by MPI_Psend_init at "], 0),
    "left-precv": ([rf"rank 1: MPI_Precv_init at {PLACE} was never completed: the receive has not matched an MPI_Psend_init "
                    r"from rank 0 with tag 7 in MPI_COMM_WORLD"], 0),
    "left-isendrecv": ([rf"rank 1: MPI_Isendrecv at {PLACE} was never completed: the receive waits for up to 40 bytes from rank 0"], 0),
    "left-grequest": ([rf"rank 1: MPI_Grequest_start at {PLACE} was never completed: MPI_Grequest_complete was not call"], 0),
    "left-freed": ([rf"{NEVER}a message \(tag 1, 12 bytes\) from rank 0 in a communicator that was freed, sent by"], 0),
    "left-dup": ([rf"{NEVER}a message \(tag 1, 12 bytes\) from rank 0 in halo, sent by MPI_Send at {PLACE}"], 0),
    "threads-single": ([rf"rank 1: thread \d+ calls MPI_Comm_set_name at {PLACE}, but at MPI_THREAD_SINGLE \(the level of "
                        r"MPI_Init\) only .* \"main\" is outside of MPI at that time. Request MPI_THREAD_"], 0),
    "threads-funneled": ([rf"rank 1: thread \d+ calls MPI_Comm_set_name at {PLACE}, but at MPI_THREAD_FUNNELED only the"], 0),
    "threads-beside": ([r"rank 1: thread \d+ calls MPI_Comm_set_name at .*; thread \"main\" is in MPI_Reduce_local at that"], 0),
    "threads-serialized": ([rf"rank 1: thread \d+ calls MPI_Comm_set_name at {PLACE} while thread \"main\" is in "
                            r"MPI_Reduce_local, but at MPI_THREAD_SERIALIZED only one .* Request MPI_THREAD_"], 0),
    "threads-turns": ([], 0),
    "threads-query": ([], 0),
    "coll-type": ([rf"rank 1: MPI_Bcast at {PLACE} expects 10 MPI_INT from rank 0, which passes 10 MPI_FLOAT to "
                   rf"MPI_Bcast at {PLACE}"], 0),
    "coll-gather": ([r"rank 0: MPI_Gather at .* expects 2 MPI_FLOAT from rank 1, which passes 2 MPI_INT"], 0),
    "coll-alltoallv": ([r"rank 0: MPI_Alltoallv at .* expects 2 MPI_FLOAT from rank 1, which passes 2 MPI_INT",
                        r"rank 1: MPI_Alltoallv at .* expects 2 MPI_FLOAT from rank 1, which passes 2 MPI_INT"], 0),
    "coll-comm": ([rf"rank \d is in MPI_(Barrier|Comm_split) at {PLACE}, this rank is in MPI_"], 16),
    "coll-allreduce": ([r"rank 0: MPI_Allreduce at .* expects 4 MPI_FLOAT from rank 1, which passes 4 MPI_INT",
                        r"rank 1: MPI_Allreduce at .* expects 4 MPI_INT from rank 0, which passes 4 MPI_FLOAT"], 0),
    "coll-call": ([rf"rank \d is in MPI_(Barrier|Bcast) at {PLACE}, this rank is in MPI_(Bcast|Barrier) at {PLACE}"], 16),
    "coll-root": ([r"rank \d passes the root \d to MPI_Bcast at .*, this rank passes \d to MPI_Bcast"], 8),
    "coll-overlap": ([r"MPI_ERR_BUFFER", r"the send buffer \(16 bytes at .*\) and the receive buffer \(16 .*\) overlap"], 1),
    "coll-op": ([r"rank \d passes MPI_\w+ to MPI_Allreduce at .*, this rank passes MPI_\w+ to MPI_Allreduce"], 10),
    "coll-nonblocking": ([rf"rank \d is in MPI_I?[aA]llreduce at {PLACE}, this rank is in MPI_I?[aA]llreduce at "], 16),
    "coll-init": ([rf"rank \d is in MPI_Allreduce(_init)? at {PLACE}, this rank is in MPI_Allreduce(_init)? at "], 16),
    "coll-init-nonblocking": ([rf"rank \d is in MPI_(Iallreduce|Allreduce_init) at {PLACE}, this rank is in MPI_"], 16),
    "file-names": ([rf'rank 1: MPI_File_open at {PLACE} opens "\S*/mistakes\.1", but rank 0 of its communicator opens another'], 0),
    "file-calls": ([r"rank \d is in MPI_File_write_(at_)?all at .*, this rank is in MPI_File_write_(at_)?all at "], 16),
    "file-sync": ([r"rank \d is in MPI_File_(sync|set_size) at .*, this rank is in MPI_File_(sync|set_size) at "], 16),
    "file-left": ([rf'rank {rank}: MPI_File_close was never called for the file "\S*/mistakes\.0", opened by '
                   rf"MPI_File_open at {PLACE}" for rank in (0, 1)], 0),
    "rma-puts": ([rf"rank 1: MPI_Put at {PLACE} accesses 8 bytes at byte 12 of rank 0 in the window \(ledger\) that MPI_Put at "
                  rf"{PLACE} has accessed too, and nothing orders the two accesses: call MPI_Win_flush"], 0),
    "rma-get": ([r"rank 1: MPI_Get at .* accesses 4 bytes at byte 20 of rank 0 .* that MPI_Put at .* has accessed too"], 0),
    "rma-accumulate": ([r"rank 1: MPI_Accumulate at .* accesses 4 bytes at byte 8 of rank 0 .* that MPI_Put at "], 0),
    "own-gets": ([rf"rank 1: MPI_Get at {PLACE} writes 4 bytes of its buffer, from byte 0 on, that MPI_Get at {PLACE} writes too "
                  r"\(rank 0, window ledger\), and nothing orders the two accesses: call MPI_Win_flush_local"], 0),
    "own-put-of-get": ([rf"rank 1: MPI_Put at {PLACE} reads 4 bytes .* that MPI_Get at {PLACE} writes too"], 0),
    "own-get-to-put": ([rf"rank 1: MPI_Get at {PLACE} writes 4 bytes .* that MPI_\w+ at {PLACE} reads too"], 0),
    "own-accumulate": ([rf"rank 1: MPI_Accumulate at {PLACE} reads 4 bytes .* that MPI_Get at {PLACE} writes too"], 0),
    "own-no-op": ([rf"rank 1: MPI_Fetch_and_op at {PLACE} writes 4 bytes .* that MPI_Get_accumulate at {PLACE} writes too"], 0),
    "own-swap": ([rf"rank 1: MPI_Compare_and_swap at {PLACE} writes 4 bytes .* that MPI_\w+ at {PLACE} reads too",
                  rf"rank 1: MPI_Compare_and_swap at {PLACE} writes 4 bytes of its buffer, from byte 0 on, that the same "
                  r"operation reads too .*: operands and result must not overlap"], 0),
    "own-windows": ([rf"rank 1: MPI_Get at {PLACE} writes 4 bytes .* that MPI_Get at {PLACE} writes too"], 0),
    "own-ranks": ([rf"rank 1: MPI_Get at {PLACE} writes 4 bytes .* that MPI_Get at {PLACE} writes too \(rank 1"], 0),
    "own-rput": ([rf"rank 1: MPI_Rput at {PLACE} reads 4 bytes .* that MPI_Get at {PLACE} writes too"], 0),
    "own-loop": ([rf"rank 1: MPI_Get at {PLACE} writes 8 bytes .* that MPI_Get at {PLACE} writes too"], 0),
    "own-type": ([rf"rank 1: MPI_Put at {PLACE} reads 4 bytes .* that MPI_Get at {PLACE} writes too"], 0),
    "own-elsewhere": ([rf"rank 1: MPI_Get at {PLACE} writes 4 bytes .* that MPI_Get at {PLACE} writes too"], 0),
    "rma-fence": ([r"rank 1: MPI_Put at .* that MPI_Put at .* has accessed too, .*: end the epoch between them"], 0),
    "rma-local": ([r"rank 1: MPI_Get at .* accesses 4 bytes at byte 28 of rank 0 .* that MPI_Accumulate at "], 0),
}

CHECK = {"FASTPATH_CHECK": "1"}


def _make(how, lines, code):
    def case(session):
        outcome = session.mpirun(2, [session.binary("mistakes"), how], env=CHECK).finish()
        problem = outcome.problem(code, quiet=False)
        missing = [line for line in lines if not re.search(line, outcome.err)]
        told = len(re.findall(r"^fastpath: rank \d+: ", outcome.err, re.MULTILINE))
        if problem or missing:
            return problem or f"not reported: {missing}; but: {outcome.err}"
        if outcome.out.strip():
            return f"a status is wrong: {outcome.out}"
        return f"more is reported than the mistake: {outcome.err}" if told != len(lines) * (code == 0) else None

    return case


def case_off(session):
    """Without the variable mistakes are not checked."""
    for how in ("types", "left-short", "coll-type"):
        problem = session.mpirun(2, [session.binary("mistakes"), how]).finish().problem()
        if problem:
            return f"{how}: {problem}"
    return None


def case_init_again(session):
    """A rank whose persistent call was rejected repeats it: the calls of the others match that one."""
    return session.mpirun(2, [session.binary("mistakes"), "coll-init-again"], env=CHECK).finish().problem()


def case_some_ranks(session):
    """Ranks with and without FASTPATH_CHECK cannot communicate: the job does not start."""
    program = session.binary("mistakes")
    words = [program, "none", ":", "-n", "1", "-env", "FASTPATH_CHECK", "1", program, "none"]
    outcome = session.mpirun(1, words).finish()
    said = "the programs have different values of FASTPATH_CHECK" in outcome.err
    return outcome.problem(2, quiet=False) or (None if said else f"not reported: {outcome.err}")


def case_nothing(session):
    """Programs without a mistake: no report, at any number of ranks."""
    for ranks in (1, 2, 3, 4):
        problem = session.mpirun(ranks, [session.binary("mistakes"), "none"], env=CHECK).finish().problem()
        if problem:
            return f"{ranks} ranks: {problem}"
    return None


for _how, (_lines, _code) in MISTAKES.items():
    globals()[f"case_{_how.replace('-', '_')}"] = _make(_how, _lines, _code)
