"""LeakSanitizer finds no leak of the library in programs of tests/c built with `-fsanitize=leak`. The smallest
program runs with AddressSanitizer as well, which is more common."""

import os
import subprocess

from harness import program

# Programs with the most common calls, and their arguments.
PROGRAMS = {
    "pt2pt_modes": [], "pt2pt_middle": [], "coll_forms": [], "comm_create": [], "type_messages": [], "rma_move": [],
    "file_basic": [], "partitioned": [], "sessions": [], "spawn_basic": [], "threads_comms": [], "forked": ["exit"],
}
SMALLEST = "#include <mpi.h>\nint main(int c, char **v)\n{\n    MPI_Init(&c, &v);\n    MPI_Finalize();\n    return 0;\n}\n"
# An exit code that differs from a failed check.
OPTIONS = {"LSAN_OPTIONS": "exitcode=23", "ASAN_OPTIONS": "exitcode=23"}
# Printed if a sanitizer may not trace the process (ptrace is refused), or the compiler lacks it.
UNUSABLE = ("LeakSanitizer has encountered a fatal error", "LeakSanitizer: ptrace")


def _build(session, name, source, flags):
    """Returns the program, or None if the compiler has no such sanitizer. Any other error of the compiler is a
    failure."""
    binary = os.path.join(session.build, name)
    command = [session.mpicc, *program.FLAGS, "-fno-omit-frame-pointer", *flags, "-o", binary, source]
    complaint = program.build(binary, command, [source])
    if not complaint:
        return binary
    empty = ["cc", *flags, "-x", "c", "-o", binary + "_empty", "-"]
    if subprocess.run(empty, input="int main(void) { return 0; }", text=True, capture_output=True).returncode == 0:
        raise RuntimeError(f"{source} does not compile: {complaint}")
    return None


def _judge(session, label, ranks, words, quiet=True):
    outcome = session.mpirun(ranks, words, timeout=120, env=OPTIONS).finish()
    if any(text in outcome.err for text in UNUSABLE):
        session.skip(label, "the sanitizer may not look at processes here")
        return None
    problem = outcome.problem(quiet=quiet)
    return (problem, outcome.text()) if problem else None


def _make_program(name, args):
    def case(session):
        binary = _build(session, f"leaks_{name}", program.source(name), ["-fsanitize=leak"])
        if binary is None:
            return session.skip(f"leaks.{name}", "the compiler has no -fsanitize=leak")
        return _judge(session, f"leaks.{name}", 2, [binary, *args])

    case.long = name not in ("pt2pt_middle", "coll_forms", "rma_move")
    return case


def _make_smallest(kind):
    def case(session):
        source = os.path.join(session.build, "leaks_smallest.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(SMALLEST)
        binary = _build(session, f"leaks_smallest_{kind}", source, [f"-fsanitize={kind}"])
        if binary is None:
            return session.skip(f"leaks.{kind}", f"the compiler has no -fsanitize={kind}")
        return _judge(session, f"leaks.{kind}", 2, [binary])

    return case


for _name, _args in PROGRAMS.items():
    globals()[f"case_{_name}"] = _make_program(_name, _args)
for _kind in ("address", "leak"):
    globals()[f"case_smallest_{_kind}"] = _make_smallest(_kind)
