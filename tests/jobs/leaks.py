"""Sanitizers and valgrind's memcheck report nothing about programs that use the library. The smallest program and one
that uses each chapter run under each of them, started by `mpiexec` and alone. LeakSanitizer also runs further programs
of tests/c. Memcheck counts a block that is still reachable as an error."""

import os
import subprocess

from harness import program

# Programs with the most common calls, and their arguments.
PROGRAMS = {
    "pt2pt_modes": [], "pt2pt_middle": [], "coll_forms": [], "comm_create": [], "type_messages": [], "rma_move": [],
    "file_basic": [], "partitioned": [], "sessions": [], "spawn_basic": [], "threads_comms": [], "forked": ["exit"],
}
# The smallest program, and one that uses each chapter.
SMALLEST, CHAPTERS = "init_finalize", "clean_exit"
SANITIZERS = ("leak", "address", "undefined", "thread")
# Programs with several threads, and their arguments; messages of the first order accesses of its threads.
ORDERED = "threads_ordered"
THREADED = {ORDERED: [], "pt2pt_threads": [], "comm_threads": [], "rma_threads": [], "coll_forms_threads": []}
# An exit code that differs from a failed check.
FOUND = 23
OPTIONS = {name: f"exitcode={FOUND}" for name in ("LSAN_OPTIONS", "ASAN_OPTIONS", "TSAN_OPTIONS")}
OPTIONS["UBSAN_OPTIONS"] = f"halt_on_error=1:exitcode={FOUND}"
MEMCHECK = ["valgrind", "--quiet", "--leak-check=full", "--show-leak-kinds=all", "--errors-for-leak-kinds=all",
            f"--error-exitcode={FOUND}"]
# Further settings under which memcheck runs the program that uses each chapter.
SETTINGS = {
    "": {}, "tcp": {"FASTPATH_TRANSPORTS": "tcp"}, "check": {"FASTPATH_CHECK": "1"},
    "progress": {"FASTPATH_PROGRESS": "thread"},
}
# Printed if a sanitizer may not trace the process (ptrace is refused).
UNUSABLE = ("LeakSanitizer has encountered a fatal error", "LeakSanitizer: ptrace")


def _build(session, name, source, sanitizer):
    """Returns the program, or None if the compiler has no such sanitizer. Any other error of the compiler is a
    failure."""
    binary = os.path.join(session.build, name)
    flags = [f"-fsanitize={sanitizer}", "-fno-omit-frame-pointer"]
    command = [session.mpicc, *program.FLAGS, *flags, "-o", binary, source]
    complaint = program.build(binary, command, [source])
    if not complaint:
        return binary
    empty = ["cc", *flags, "-x", "c", "-o", binary + "_empty", "-"]
    if subprocess.run(empty, input="int main(void) { return 0; }", text=True, capture_output=True).returncode == 0:
        raise RuntimeError(f"{source} does not compile: {complaint}")
    return None


def _programs(session):
    """Names and arguments of the two programs that run under every checker."""
    return [(SMALLEST, []), (CHAPTERS, [os.path.join(session.folder, "leaks.file")])]


def _judge(session, label, ranks, words, env=None):
    """Runs a program as a job, or alone for 0 ranks."""
    env = {**OPTIONS, **(env or {})}
    running = session.mpirun(ranks, words, timeout=300, env=env) if ranks else session.start(words, 300, env=env)
    outcome = running.finish()
    if any(text in outcome.err for text in UNUSABLE):
        session.skip(label, "the sanitizer may not look at processes here")
        return None
    problem = outcome.problem()
    return (f"{label} on {ranks or 'no'} ranks: {problem}", outcome.text()) if problem else None


def _make_program(name, args):
    def case(session):
        binary = _build(session, f"leaks_{name}", program.source(name), "leak")
        if binary is None:
            return session.skip(f"leaks.{name}", "the compiler has no -fsanitize=leak")
        return _judge(session, f"leaks.{name}", 2, [binary, *args])

    case.long = name not in ("pt2pt_middle", "coll_forms", "rma_move")
    return case


def _make_sanitized(sanitizer):
    def case(session):
        for name, args in _programs(session):
            binary = _build(session, f"leaks_{name}_{sanitizer}", program.source(name), sanitizer)
            if binary is None:
                return session.skip(f"leaks.{sanitizer}", f"the compiler has no -fsanitize={sanitizer}")
            for ranks in (0, 2):
                problem = _judge(session, f"{name} with -fsanitize={sanitizer}", ranks, [binary, *args])
                if problem:
                    return problem
        return None

    return case


def _make_threaded(name, args):
    def case(session):
        binary = _build(session, f"leaks_{name}_thread", program.source(name), "thread")
        if binary is None:
            return session.skip(f"leaks.{name}", "the compiler has no -fsanitize=thread")
        return _judge(session, f"{name} with -fsanitize=thread", 2, [binary, *args])

    return case


def case_thread_sanitizer_finds_a_race(session):
    """ThreadSanitizer reports the only race of a program with several threads, so that its silence means something."""
    binary = _build(session, f"leaks_{ORDERED}_thread", program.source(ORDERED), "thread")
    if binary is None:
        return session.skip("leaks.thread_sanitizer_finds_a_race", "the compiler has no -fsanitize=thread")
    outcome = session.mpirun(1, [binary, "race"], timeout=300, env=OPTIONS).finish()
    if outcome.code != FOUND or outcome.err.count("WARNING: ThreadSanitizer") != 1 or "'unordered'" not in outcome.err:
        return f"ThreadSanitizer does not report one race: exit code {outcome.code}", outcome.text()
    return None


def _make_memcheck(label, env):
    def case(session):
        for name, args in _programs(session):
            binary = session.binary(name)
            for ranks in (0, 2):
                problem = _judge(session, f"{name} under memcheck", ranks, [*MEMCHECK, binary, *args], env)
                if problem:
                    return problem
        return None

    case.long = label not in ("", "tcp")
    return case


def case_finds_a_leak(session):
    """Memcheck reports the only block that a program does not free, so that its silence means something."""
    outcome = session.start([*MEMCHECK, session.binary(SMALLEST), "lose"], 300).finish()
    if outcome.code != FOUND or outcome.err.count("still reachable") != 1:
        return f"memcheck does not report one reachable block: exit code {outcome.code}", outcome.text()
    return None


for _name, _args in PROGRAMS.items():
    globals()[f"case_{_name}"] = _make_program(_name, _args)
for _name, _args in THREADED.items():
    globals()[f"case_thread_sanitizer_{_name}"] = _make_threaded(_name, _args)
for _sanitizer in SANITIZERS:
    globals()[f"case_{_sanitizer}_sanitizer"] = _make_sanitized(_sanitizer)
for _label, _env in SETTINGS.items():
    globals()["case_memcheck" + (f"_{_label}" if _label else "")] = _make_memcheck(_label, _env)
