"""Debuggers find the ranks of a job by the MPIR symbols of mpiexec. -gdb and -gtool start ranks in a debugger."""

import os
import re
import shutil
import subprocess

from jobs.verdicts import _await_ready, _await_sleep, _start

# Commands of gdb that print the table. A stripped launcher has no types.
TABLE = ("print MPIR_debug_state", "print MPIR_proctable_size", "print *MPIR_proctable@MPIR_proctable_size")
STRIPPED = ("print *(int *)&MPIR_debug_state", "print *(int *)&MPIR_proctable_size",
            *(f"x/s (*(char ***)&MPIR_proctable)[3 * {rank} + 1]" for rank in (0, 1)),
            *(f"print *(int *)(*(char ***)&MPIR_proctable + 3 * {rank} + 2)" for rank in (0, 1)))


def _gdb(session, commands, words, **more):
    """Runs gdb without a terminal on a command line; None if gdb cannot trace processes here."""
    if not shutil.which("gdb"):
        return session.skip("gdb", "gdb is not installed (tests/setup installs it)")
    script = os.path.join(session.folder, "script.gdb")
    with open(script, "w", encoding="utf-8") as file:
        file.write("\n".join(["set confirm off", "set pagination off", "set width 0", *commands]) + "\n")
    outcome = session.start(["gdb", "-batch", "-nx", "-x", script, *words], **more).finish()
    if "Operation not permitted" in outcome.err and "ptrace" in outcome.err:
        return session.skip("gdb", "the kernel refuses ptrace")
    return outcome


def _names(session, pids):
    """Yields commands of gdb that print program and rank of processes. gdb must have stopped the launcher."""
    for pid in pids:
        yield f'eval "shell readlink /proc/%d/exe", {pid}'
        yield f"eval \"shell tr '\\\\0' '\\\\n' < /proc/%d/environ | grep ^FASTPATH_RANK=\", {pid}"


def case_table(session):
    """gdb starts mpiexec and stops in MPIR_Breakpoint; each rank has its process and its program in the table."""
    program, other = session.binary("world"), os.path.join(session.folder, "other")
    shutil.copy(program, other)
    pids = [f"MPIR_proctable[{rank}].pid" for rank in range(3)]
    commands = ["break MPIR_Breakpoint", "run", *TABLE, *_names(session, pids), "continue"]
    job = ["-n", "2", program, ":", "-n", "1", other]
    outcome = _gdb(session, commands, ["--args", session.mpiexec, "--timeout", "30", *job])
    if outcome is None:
        return None
    rows = re.findall(r'host_name = 0x\w+ "([^"]+)", executable_name = 0x\w+ "([^"]+)", pid = (\d+)', outcome.out)
    if [(host, path) for host, path, _ in rows] != [(os.uname().nodename, p) for p in (program, program, other)]:
        return f"table {rows}", outcome.text()
    names = re.findall(r"^(/.*)\nFASTPATH_RANK=(\d)$", outcome.out, re.MULTILINE)
    if names != [(program, "0"), (program, "1"), (other, "2")]:
        return f"processes {names}", outcome.text()
    if "$1 = 1\n$2 = 3\n" not in outcome.out:
        return "state and size are not those of a complete table", outcome.text()
    return None


def case_stripped(session):
    """The symbols survive `strip`."""
    mpiexec = os.path.join(session.folder, "mpiexec")
    subprocess.run(["strip", "--strip-all", "-o", mpiexec, session.mpiexec], check=True)
    program = session.binary("world")
    commands = ["break MPIR_Breakpoint", "run", *STRIPPED, "continue"]
    outcome = _gdb(session, commands, ["--args", mpiexec, "--timeout", "30", "-n", "2", program])
    if outcome is None:
        return None
    is_named = len(re.findall(rf'^0x\w+:\t"{re.escape(program)}"$', outcome.out, re.MULTILINE)) == 2
    pids = re.findall(r"^\$[34] = (\d+)$", outcome.out, re.MULTILINE)
    is_whole = "$1 = 1\n$2 = 2\n" in outcome.out and len(set(pids) - {"0"}) == 2
    return None if is_named and is_whole else (f"pids {pids}, programs named: {is_named}", outcome.text())


def case_held(session):
    """Ranks wait in MPI_Init until the debugger continues mpiexec, even if the job has only one rank."""
    program, fastpath = session.binary("world"), os.path.join(session.prefix, "bin", "fastpath")
    # Ends only when each rank sleeps in MPI_Init. A rank that is not held never does.
    listed = rf"{fastpath} ps %d --json | grep -A1 '\\\"phase\\\": \\\"in MPI_Init\\\"' | grep -c '\\\"activity\\\": \\\"asleep\\\"'"
    for ranks in (1, 2):
        wait = f'eval "shell until test $({listed}) = {ranks}; do sleep 0.02; done; echo held {ranks}", (int)getpid()'
        outcome = _gdb(session, ["break MPIR_Breakpoint", "run", wait, "continue"],
                       ["--args", session.mpiexec, "-n", str(ranks), program], timeout=40)
        if outcome is None:
            return None
        before, _, after = outcome.out.partition(f"held {ranks}\n")
        if "rank" in before or after.count(f" of {ranks}") != ranks or "exited normally" not in after:
            return f"{ranks} ranks: not held until the debugger continued", outcome.text()
    return None


def case_attach(session):
    """A debugger that attaches to the mpiexec of a running job finds the table."""
    job = _start(session, 2, "ring", timeout=60, env={"FASTPATH_WAIT": "sleep"})
    _await_ready(job, 2)
    _await_sleep(job, [0, 1])
    outcome = _gdb(session, TABLE, ["-p", str(job.process.pid)])
    pids = [job.rank_process(rank) for rank in (0, 1)]
    job.kill_all()
    job.finish()
    if outcome is None:
        return None
    found = re.findall(r"pid(?: =|:) (\d+)", outcome.out)
    return None if found == [str(pid) for pid in pids] else (f"table {found}, ranks {pids}", outcome.text())


def case_abort(session):
    """mpiexec stops once more when the job aborts, with the reason."""
    commands = ["break MPIR_Breakpoint", "run", "continue", "print MPIR_debug_state", "print MPIR_debug_abort_string", "continue"]
    words = ["--args", session.mpiexec, "-n", "2", session.binary("fatal"), "abort"]
    outcome = _gdb(session, commands, words)
    if outcome is None:
        return None
    is_told = re.search(r'^\$1 = 2\n\$2 = 0x\w+ "mpiexec: .*MPI_Abort', outcome.out, re.MULTILINE)
    return None if is_told else ("the abort is not reported", outcome.text())


QUEUES = [
    """MPI_COMM_WORLD: rank 0 of 0 1
  receive status 0 local 1 global 1 tag 25 wild 0 length 4 copied 0
MPI_COMM_SELF: rank 0 of 0
halo: rank 0 of 0 1
  send status 0 local 1 global 1 tag 7 wild 0 length 1048576 copied 0
made by MPI_Comm_split: rank 1 of 1 0
  receive status 0 local 0 global 1 tag 3 wild 0 length 30 copied 0
""", """MPI_COMM_WORLD: rank 1 of 0 1
  receive status 0 local -1 global -1 tag -1 wild 1 length 10 copied 0
  receive status 0 local 0 global 0 tag 9 wild 0 length 20 copied 0
MPI_COMM_SELF: rank 0 of 1
halo: rank 1 of 0 1
  receive status 0 local 0 global 0 tag 24 wild 0 length 4 copied 0
  unexpected status 0 local 0 global 0 tag 5 wild 0 length 4 copied 1
  unexpected status 0 local 0 global 0 tag 6 wild 0 length 1000 copied 1
  unexpected status 0 local 0 global 0 tag 7 wild 0 length 1048576 copied 1
made by MPI_Comm_split: rank 0 of 1 0
"""]


def case_queues(session):
    """A debugger lists communicators, sends, receives and unexpected messages of both ranks by libfastpath_dbg.so."""
    reader = session.binary("queues_reader")
    job = _start(session, 2, "queues", timeout=60, env={"FASTPATH_WAIT": "sleep"})
    _await_ready(job, 2)
    _await_sleep(job, [0, 1])
    outcomes = [subprocess.run([reader, str(job.rank_process(rank))], capture_output=True, text=True, timeout=60, check=False)
                for rank in (0, 1)]
    other = subprocess.run([reader, str(job.process.pid)], capture_output=True, text=True, timeout=60, check=False)
    is_running = job.process.poll() is None
    job.kill_all()
    job.finish()
    if not is_running:
        return "the job has ended"
    library = os.path.join(os.path.realpath(session.prefix), "lib", "libfastpath_dbg.so")
    head = f"library {library}\ninterface 2, addresses of 8 bytes\nimage 0 \nprocess 0 \n"
    for rank, outcome in enumerate(outcomes):
        # The number of moved bytes of a long message depends on the protocol.
        found = re.sub(r" +(\d+ bytes moved)?$", "", outcome.stdout, flags=re.MULTILINE)
        wanted = re.sub(r" +$", "", head + QUEUES[rank] + "end\n", flags=re.MULTILINE)
        if found != wanted:
            return f"rank {rank}: other queues", f"found:\n{found}\nwanted:\n{wanted}"
    return None if other.returncode == 1 else "queues of a process without the library are listed"


def case_tool(session):
    """Each tool starts its ranks, with the program's arguments. Ranks without a tool start as usual."""
    words = ["-gtool", "env TOOL=first:0; env 'TOOL=a b':2", "-n", "3", "sh", "-c", 'echo "$0 $FASTPATH_RANK ${TOOL-none}"', "arg"]
    outcome = session.start([session.mpiexec, *words]).finish()
    lines = sorted(outcome.out.splitlines())
    return outcome.problem() or (None if lines == ["arg 0 first", "arg 1 none", "arg 2 a b"] else (f"{lines}", outcome.text()))


def case_gdb_option(session):
    """-gdb starts each rank in gdb, and every gdb reads the standard input of mpiexec."""
    if not shutil.which("gdb"):
        return session.skip("gdb", "gdb is not installed (tests/setup installs it)")
    commands = os.path.join(session.folder, "commands")
    with open(commands, "w", encoding="utf-8") as file:
        file.write("set breakpoint pending on\nbreak MPI_Finalize\nrun\nbacktrace 1\ncontinue\nquit\n")
    with open(commands, encoding="utf-8") as stdin:
        words = [session.mpiexec, "--timeout", "50", "-gdb", "-n", "2", session.binary("world")]
        outcome = session.start(words, stdin=stdin).finish()
    if "Operation not permitted" in outcome.out + outcome.err:
        return session.skip("gdb", "the kernel refuses ptrace")
    for rank in (0, 1):
        stopped = re.search(rf"^\[{rank}\] .*Breakpoint 1, .*MPI_Finalize", outcome.out, re.MULTILINE)
        ended = re.search(rf"^\[{rank}\] .*\[Inferior 1 \(process \d+\) exited normally\]", outcome.out, re.MULTILINE)
        if not stopped or not ended:
            return f"rank {rank}: stopped {bool(stopped)}, ended {bool(ended)}", outcome.text()
    return outcome.problem(quiet=False)
