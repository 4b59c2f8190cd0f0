"""Other launchers: a process that one of them has started as one of several stops with a remedy, and is never
silently rank 0 of 1. The environments are those that the launchers set. crates/job/src/detect/tests.rs has
many more, and tests/interchange starts a real one."""

import os
import re
import shlex
import subprocess
import sys
import tempfile

from harness import packages

# Variables of one of several processes, the variable that is named, and the start of the command.
LAUNCHERS = {
    "hydra": ("PMI_FD=9 PMI_RANK={rank} PMI_SIZE=2 MPI_LOCALRANKID={rank}", "PMI_SIZE=2", "Hydra", ""),
    "open_mpi": (
        "PMIX_NAMESPACE=prterun-a-1@1 PMIX_RANK={rank} OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE=2",
        "OMPI_COMM_WORLD_SIZE=2", "mpirun of Open MPI", ""),
    "slurm": (
        "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=2 SLURM_PROCID={rank}",
        "SLURM_STEP_NUM_TASKS=2", "srun", "srun -N 1 -n 1 -c 2 "),
    "flux": (
        "FLUX_JOB_ID=f9F7 FLUX_JOB_SIZE=2 FLUX_TASK_RANK={rank} PMI_FD=9 PMI_RANK={rank} PMI_SIZE=2",
        "FLUX_JOB_SIZE=2", "Flux", "flux run -n 1 -c 2 "),
}
BATCH = {"SLURM_JOB_ID": "4", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}
PYTHON = """
import ctypes, sys
mpi = ctypes.CDLL(sys.argv[1])
mpi.MPI_Init(None, None)
print("python has initialised MPI")
mpi.MPI_Finalize()
"""

# A PMI-1 launcher of one process, like Hydra: a socket to itself that the process inherits, or not.
LAUNCHER_OF_ONE = """
import os, socket, subprocess, sys
ours, theirs = socket.socketpair()
env = dict(os.environ, PMI_FD=str(theirs.fileno()), PMI_RANK="0", PMI_SIZE="1")
inherited = [theirs.fileno()] if sys.argv[1] == "open" else []
sys.exit(subprocess.run([sys.argv[2]], env=env, pass_fds=inherited).returncode)
"""


def _environment(name, rank=0):
    return dict(pair.split("=", 1) for pair in LAUNCHERS[name][0].format(rank=rank).split())


def _alone(session, env, words=None):
    outcome = session.start(words or [session.binary("world")], env=env).finish()
    wrong = None if outcome.out.endswith("rank 0 of 1\n") else f"it printed {outcome.out!r}"
    return outcome.problem() or wrong, outcome.text()


def _make(name):
    _, variable, launcher, prefix = LAUNCHERS[name]

    def case(session):
        words = [session.binary("world"), "two words"]
        first = session.start(words, env=_environment(name)).finish()
        if problem := first.problem(16, quiet=False):
            return problem, first.text()
        found = re.search(r"to do: +(.*) \(or set FASTPATH_SINGLETON=1", first.err)
        wanted = ["fatal error in MPI_Init on rank 0 of 2", launcher, f"{variable} shows"]
        missing = [text for text in wanted if text not in first.err]
        if missing or not found or first.out != "initialized 0, Fastpath\n":
            return f"the report lacks {missing or 'a command'}", first.text()
        command = found[1]
        if not command.startswith(prefix + session.mpiexec):
            return f"the command is {command!r}", first.text()
        # The command works without its prefix, which needs the launcher.
        ranks = session.start(shlex.split(command[len(prefix):])).finish()
        if problem := ranks.problem():
            return f"{command}: {problem}", ranks.text()
        if "rank 0 of 2\n" not in ranks.out or "rank 1 of 2\n" not in ranks.out:
            return f"{command} starts no two ranks", ranks.text()
        # The other ranks print one line, with the command.
        second = session.start(words, env=_environment(name, 1)).finish()
        if len(second.err.splitlines()) != 1 or "rank 1 of 2" not in second.err or command not in second.err:
            return "rank 1 does not say one line", second.text()
        return second.problem(16, quiet=False), second.text()

    return case


def case_none(session):
    """Without a launcher a program is alone."""
    return _alone(session, {})


def case_batch_script(session):
    """A program is alone in a batch script that has four tasks to start."""
    return _alone(session, BATCH)


def case_socket(session):
    """A launcher of one process inside one of several is used if its socket proves that it is the inner one."""
    words = [sys.executable, "-c", LAUNCHER_OF_ONE, "closed", session.binary("world")]
    closed = session.start(words, env=_environment("slurm")).finish()
    if problem := closed.problem(16, quiet=False):
        return "without the socket: " + problem, closed.text()
    words[3] = "open"
    return _alone(session, _environment("slurm"), words)


def case_switch(session):
    """The inner launcher is used on request."""
    return _alone(session, {**_environment("hydra"), "FASTPATH_SINGLETON": "1"})


def case_child(session):
    """A program that a rank of ours starts is alone; the rank itself keeps its place."""
    inner = f"import ctypes, subprocess; mpi = ctypes.CDLL({_library(session)!r}); mpi.MPI_Init(None, None); " \
            f"subprocess.run([{session.binary('world')!r}], check=True); mpi.MPI_Finalize()"
    outcome = session.mpirun(1, [sys.executable, "-c", inner]).finish()
    return outcome.problem() or (None if "rank 0 of 1" in outcome.out else "it is not alone"), outcome.text()


def case_python(session):
    """An interpreter is named with its script."""
    words = [sys.executable, "-c", PYTHON, _library(session)]
    alone = session.start(words).finish()
    if problem := alone.problem():
        return problem, alone.text()
    several = session.start(words, env=_environment("slurm")).finish()
    wrong = None if sys.executable in several.err and "SLURM_STEP_NUM_TASKS=2" in several.err else "no command"
    return several.problem(16, quiet=False) or wrong, several.text()


def case_other_library(session):
    """A program of another MPI library runs alone on each rank. The user is told, also if it hangs; a program
    without MPI is no problem."""
    # The name of a library behind a script, as in a program that is linked with it.
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "other_library")
        with open(path, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\nexec "$@"\n# libmpi.so.12\n')
        os.chmod(path, 0o755)
        ended = session.mpirun(2, [path, "true"]).finish()
        hung = session.mpirun(2, [path, "sleep", "1000"], timeout=1).finish()
    for told, code in [(ended, 0), (hung, 124)]:
        is_told = told.err.count("no rank has called MPI_Init of Fastpath") == 1 and "libmpi.so" in told.err
        if problem := told.problem(code, quiet=False) or (None if is_told else "it is not reported"):
            return problem, told.text()
    silent = session.mpirun(2, ["true"]).finish()
    return silent.problem(), silent.text()


def case_other_library_opened(session):
    """A program opens the library of another MPI while it runs. The report names the library and the remedy for
    Python, at the end of the job and, if it is long, while it runs. A library with another name is not reported."""
    def run(library, seconds, **more):
        program = f"import ctypes, time; ctypes.CDLL('{library}'); time.sleep({seconds})"
        # Behind a shell, as in a script of the user.
        return session.mpirun(2, ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", program], **more).finish()

    with tempfile.TemporaryDirectory() as folder:
        libraries = [os.path.join(folder, name) for name in ("libmpi.so.12", "libmpiwrap.so.12")]
        for library in libraries:
            subprocess.run(["cc", "-shared", "-o", library, "-xc", os.devnull], check=True)
        ended, silent, long = run(libraries[0], 1), run(libraries[1], 1), run(libraries[0], 1000, timeout=12)
    for told, code in [(ended, 0), (long, 124)]:
        is_told = told.err.count("no rank has called MPI_Init of Fastpath") == 1
        is_named = f"loaded {libraries[0]} of another MPI" in told.err and "mpicc python -m pip install" in told.err
        if problem := told.problem(code, quiet=False) or (None if is_told and is_named else "it is not reported"):
            return problem, told.text()
    if long.err.index("no rank has called MPI_Init") > long.err.index("the job did not end within"):
        return "it is reported only at the end", long.text()
    return silent.problem(), silent.text()


case_other_library_opened.needs = {"processors": 0}


def case_other_library_of_mpi4py(session):
    """mpi4py's wheel loads MPICH, whose wheel is in the same environment: both ranks are rank 0 of 1. The report has
    the command that builds mpi4py for this library."""
    python = os.path.join(packages.python("mpi4py==4.1.2", packages.WHEELS["mpich"]), "bin", "python")
    program = "from mpi4py import MPI; import time; print(MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size); time.sleep(0.5)"
    outcome = session.mpirun(2, [python, "-c", program]).finish()
    is_told = outcome.err.count("no rank has called MPI_Init of Fastpath") == 1
    is_named = f"MPICC={session.prefix}/bin/mpicc {python} -m pip install" in outcome.err
    wrong = None if outcome.out == "0 1\n0 1\n" and is_told and is_named else "it is not reported"
    return outcome.problem(quiet=False) or wrong, outcome.text()


def case_inside(session):
    """A launcher that a rank of ours starts passes our variables on; its ranks must ignore them."""
    pairs = [f"{name}={value}" for name, value in _environment("open_mpi").items()]
    outcome = session.mpirun(1, ["env", *pairs, session.binary("world")]).finish()
    wrong = None if "OMPI_COMM_WORLD_SIZE=2 shows" in outcome.err else "it prints nothing"
    return outcome.problem(16, quiet=False) or wrong, outcome.text()


def case_universe(session):
    """MPI_UNIVERSE_SIZE is the value of -usize or the slots of hosts."""
    for options, size in ((["-usize", "12"], 12), (["--host", "localhost:7"], 7), (["-usize", "5", "--host", "localhost:7"], 5)):
        outcome = session.mpirun(2, [session.binary("ends")], options=options).finish()
        problem = outcome.problem()
        if problem or outcome.out.count(f"universe {size}\n") != 2:
            return problem or f"{' '.join(options)} gives another size than {size}", outcome.text()
    return None


def _library(session):
    return os.path.join(session.prefix, "lib", "libmpi_abi.so.1")


for _name in LAUNCHERS:
    globals()[f"case_{_name}"] = _make(_name)
