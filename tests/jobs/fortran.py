"""Fortran programs: position-dependent, loaded as libraries, profiled by a library in C, and reports about mistakes."""

import os
import re

from harness import program
from jobs import profiling

FOLDER = program.FORTRAN


def _compile(session, name, method, suffix="", link=()):
    """A program of tests/fortran for one method, with further arguments for the compiler."""
    one = program.Program(program.source(name), method)
    one.name += suffix
    one.link += link
    complaint = one.compile(session.mpicc, session.build)
    if complaint:
        raise RuntimeError(f"{one.name} does not compile: {complaint}")
    return one.binary


def _judge(outcome, code, texts):
    """What is wrong: the exit code, or the first text that standard error lacks."""
    problem = outcome.problem(code, quiet=False)
    missing = [text for text in texts if not re.search(text, outcome.err)]
    return (problem or f"the report lacks {missing[0]}", outcome.text()) if problem or missing else None


def case_no_pie(session):
    """Constants, and functions that stand for a constant, are recognised in position-dependent code."""
    programs = [("fortran_constants", method) for method in program.METHODS] + [("fortran_callbacks", "mpi_f08")]
    for name, method in programs:
        binary = _compile(session, name, method, "-no-pie", ["-fno-pie", "-no-pie"])
        outcome = session.mpirun(2, [binary]).finish()
        if problem := outcome.problem():
            return f"{name}, {method}: {problem}", outcome.text()
    return None


def case_names(session):
    """The library has the names of procedures that options of gfortran ask for."""
    if "gfortran" not in program.fortran_compiler(session.mpicc)[0]:
        return session.skip("fortran.names", "flang has none of these options")
    for option in ("-fno-underscoring", "-fsecond-underscore"):
        for name, method in [("fortran_fixed", None), ("fortran_completion", "mpi")]:
            binary = _compile(session, name, method, option, [option])
            outcome = session.mpirun(2, [binary]).finish()
            if problem := outcome.problem():
                return f"{name}, {option}: {problem}", outcome.text()
    return None


def case_loaded(session):
    """Constants are recognised in a library that a program loads. Libraries that hide their symbols need a module: a
    COMMON block of mpif.h would be one of their own."""
    loader = os.path.join(session.build, "fortran-loader")
    source = os.path.join(FOLDER, "loader.c")
    if complaint := program.build(loader, ["cc", *program.FLAGS, "-o", loader, source], [source]):
        return complaint
    script = os.path.join(session.folder, "hidden.map")
    with open(script, "w", encoding="utf-8") as file:
        file.write("{ global: fortran_constants_; local: *; };\n")
    words = ["-DAS_LIBRARY", "-shared", "-fPIC"]
    for method, suffix, more in [*((method, "-loaded", []) for method in program.METHODS),
                                 ("mpi", "-hidden", [f"-Wl,--version-script={script}"]),
                                 ("mpi_f08", "-hidden", [f"-Wl,--version-script={script}"])]:
        library = _compile(session, "fortran_constants", method, suffix, [*words, *more])
        outcome = session.mpirun(2, [loader, library, "fortran_constants_"]).finish()
        if problem := outcome.problem():
            return f"{method}{suffix}: {problem}", outcome.text()
    return None


def case_profiled(session):
    """A profiling library in C sees each call of a Fortran program once."""
    _, library = profiling._build(session)
    for method in program.METHODS:
        binary = _compile(session, "fortran_profiled", method)
        outcome = session.mpirun(1, ["env", f"LD_PRELOAD={library}", binary]).finish()
        if problem := outcome.problem():
            return f"{method}: {problem}", outcome.text()
    return None


# Argument of fortran_fatal, its exit code, and expressions that match the report.
FATAL = {
    "rank": (6, ["MPI_Send", "rank 1 of 2", "MPI_ERR_RANK", "cause:", "77", "to do:"]),
    "abort": (9, ["MPI_Abort", "code 9", "rank 1 of 2"]),
    "early": (16, ["MPI_Comm_rank", "MPI_Init"]),
}
SECTION = {"section": (1, ["MPI_Iallreduce", "recvbuf is an array section that is not contiguous", "MPI_ERR_BUFFER"])}


def case_fatal(session):
    """Fatal errors of Fortran programs are reported as those of C programs."""
    for method in program.METHODS:
        binary = _compile(session, "fortran_fatal", method)
        for mistake, (code, texts) in {**FATAL, **(SECTION if method == "mpi_f08" else {})}.items():
            if answer := _judge(session.mpirun(2, [binary, mistake]).finish(), code, texts):
                return f"{method}, {mistake}: {answer[0]}", answer[1]
    return None


def case_check(session):
    """FASTPATH_CHECK=1 gives the place in the program, not in the Fortran library."""
    for method in program.METHODS:
        binary = _compile(session, "fortran_fatal", method)
        place = rf"fortran_fatal-{re.escape(method)}\+0x[0-9a-f]+"
        types = rf"MPI_Recv at {place} receives 4 MPI_REAL, but .* holds 4 MPI_INTEGER, sent by MPI_Send at {place}"
        left = rf"rank 1: MPI_Irecv at {place} was never completed"
        cases = [("types", types), ("left", left)]
        if method == "mpi_f08":
            cases += [("section-types", types), ("section-left", left)]
        for mistake, text in cases:
            outcome = session.mpirun(2, [binary, mistake], env={"FASTPATH_CHECK": "1"}).finish()
            if answer := _judge(outcome, 0, [text]):
                return f"{method}, {mistake}: {answer[0]}", answer[1]
    return None


def case_other_library(session):
    """Programs run over the C library of another MPI, whose handles are not the INTEGERs of Fortran."""
    library = os.path.join(session.build, "libother-library.so")
    source = os.path.join(FOLDER, "other_library.c")
    command = [session.mpicc, *program.FLAGS, "-shared", "-fPIC", "-o", library, source]
    if complaint := program.build(library, command, [source]):
        return complaint
    for name, ranks, method in [("fortran_callbacks", 2, "mpi"), ("fortran_callbacks", 2, "mpi_f08"),
                                ("fortran_completion", 1, "mpi"), ("fortran_messages", 2, "mpi_f08"),
                                ("fortran_mixed", 2, "mpi_f08"), ("fortran_sections", 2, None),
                                ("fortran_spawn", 2, "mpi"), ("fortran_topology", 4, "mpi_f08"),
                                ("fortran_types", 2, "mpi_f08")]:
        binary = _compile(session, name, method)
        outcome = session.mpirun(ranks, ["env", f"LD_PRELOAD={library}", binary]).finish()
        if problem := outcome.problem():
            return f"{name}, {method}: {problem}", outcome.text()
    return None
