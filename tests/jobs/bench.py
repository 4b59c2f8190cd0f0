"""`fastpath bench` with this library: every test at several numbers of ranks with verified contents, the list, a
rank that dies."""

import contextlib
import fcntl
import glob
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time

from harness import job, program
from harness.job import signal_all
from harness.session import ROOT
from harness.slices import sliced

# The jobs of this file have several ranks, which compute or spin.
NEEDS = {"processors": 2}

# Tests that move no message data, so that the damaging library has no effect on them.
NO_MESSAGES = {"put", "get", "atomics", "file-read", "file-write"}

# Tests that cannot verify contents: they transfer none, or do not access them.
UNCHECKED = {"barrier", "exit-skew", "memory", "startup", "flush"}


def _start(session, folder, arguments, timeout=120):
    """Runs `fastpath bench`. The launcher has the time limit too, so a hanging job reports the state of each rank.
    Instructions are counted in three jobs in sequence; each of them gets the limit."""
    jobs = 3 if arguments[:1] == ["instructions"] else 1
    words = [os.path.join(session.prefix, "bin", "fastpath"), "bench", *arguments]
    if "--list" not in arguments:
        words += ["--mpiexec-arg=--timeout", f"--mpiexec-arg={timeout}"]
    return job.Running(words, env={"XDG_CACHE_HOME": os.path.join(session.build, "cache")}, timeout=jobs * timeout, cwd=folder)


COMPILING = re.compile(r"^fastpath: compiling the benchmark program with .* \(only the first time\)\n", re.MULTILINE)


def _finish(session, arguments):
    """Runs `fastpath bench` to its end, in a separate folder. The first case prints that the program is compiled."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = _start(session, folder, arguments).finish()
    outcome.err = COMPILING.sub("", outcome.err)
    return outcome


def _measure(session, arguments, code=0):
    """Runs `fastpath bench` with its report on standard output. Returns the outcome, the problem with its end, the
    report."""
    outcome = _finish(session, [*arguments, "--json", "-"])
    problem = outcome.problem(code, quiet=code == 0)
    try:
        return outcome, problem, json.loads(outcome.out)
    except ValueError as e:
        return outcome, problem or f"no report: {e}", {"cases": []}


def _list(session):
    """Names and descriptions of the tests, as the tool lists them."""
    return dict(re.findall(r"^  (\S+) +(.*)$", _finish(session, ["--list"]).out, re.MULTILINE))


def _check(report, ranks, names):
    """Returns what is wrong with the report of a run of all tests."""
    missing = {entry["test"]: entry["reason"] for entry in report.get("missing", [])}
    if missing:
        return f"missing: {missing}"
    lacking = names - {case["test"] for case in report["cases"]}
    if lacking:
        return f"not a case of: {sorted(lacking)}"
    for case in report["cases"]:
        name = f"{case['test']} {case['variant']} {case['bytes']}"
        if case["ranks"] != ranks:
            return f"{name}: {case['ranks']} ranks"
        if case["checked"] is not True and case["test"] not in UNCHECKED:
            return f"{name}: checked is {case['checked']}"
        if case["samples"]["count"] < 1:
            return f"{name}: no samples"
    return None


def _make_all(ranks):
    def case(session):
        names = set(_list(session)) - {"floor", "copy"}
        arguments = ["all", "-n", str(ranks), "--check", "--duration", "1ms", "--rounds", "2", "--sizes", "0,8,5000"]
        outcome, problem, report = _measure(session, arguments)
        return problem or _check(report, ranks, names), outcome.text()

    return case


for _ranks in (2, 3, 4):
    globals()[f"case_all_tests_n{_ranks}"] = _make_all(_ranks) if _ranks == 2 else sliced(_make_all(_ranks))


def case_pairs_at_once_are_led_by_one(session):
    """With two pairs, two ranks send first, and only one of them reports the count."""
    outcome, problem, report = _measure(session, ["multirate", "-n", "4", "--check", "--duration", "30ms", "--rounds", "10"])
    return problem or _check(report, 4, {"multirate"}), outcome.text()


# A library between program and MPI that damages the first byte of received messages of 5000 bytes.
CORRUPT = r"""
#include <mpi.h>
static void damage(void *at) { ((char *)at)[0] ^= 1; }
static int is_one(int count, MPI_Datatype type) { int size; PMPI_Type_size(type, &size); return count * size == 5120; }
int MPI_Recv(void *b, int n, MPI_Datatype t, int s, int g, MPI_Comm c, MPI_Status *x) {
    int code = PMPI_Recv(b, n, t, s, g, c, x);
    if (is_one(n, t)) damage(b);
    return code;
}
int MPI_Sendrecv(const void *a, int m, MPI_Datatype u, int d, int h, void *b, int n, MPI_Datatype t, int s, int g,
                 MPI_Comm c, MPI_Status *x) {
    int code = PMPI_Sendrecv(a, m, u, d, h, b, n, t, s, g, c, x);
    if (is_one(n, t)) damage(b);
    return code;
}
static void *pending;
int MPI_Irecv(void *b, int n, MPI_Datatype t, int s, int g, MPI_Comm c, MPI_Request *r) {
    if (is_one(n, t)) pending = b;
    return PMPI_Irecv(b, n, t, s, g, c, r);
}
int MPI_Wait(MPI_Request *r, MPI_Status *x) {
    int code = PMPI_Wait(r, x);
    if (pending) damage(pending);
    pending = 0;
    return code;
}
int MPI_Waitall(int n, MPI_Request *r, MPI_Status *x) {
    int code = PMPI_Waitall(n, r, x);
    if (pending) damage(pending);
    pending = 0;
    return code;
}
#define AFTER(name, parameters, arguments, buffer, n, t) \
    int MPI_##name parameters { int code = PMPI_##name arguments; if (is_one(n, t)) damage(buffer); return code; }
AFTER(Bcast, (void *b, int n, MPI_Datatype t, int r, MPI_Comm c), (b, n, t, r, c), b, n, t)
AFTER(Gather, (const void *a, int m, MPI_Datatype u, void *b, int n, MPI_Datatype t, int r, MPI_Comm c),
      (a, m, u, b, n, t, r, c), b, n, t)
AFTER(Gatherv, (const void *a, int m, MPI_Datatype u, void *b, const int *n, const int *o, MPI_Datatype t, int r,
      MPI_Comm c), (a, m, u, b, n, o, t, r, c), b, m, u)
AFTER(Scatter, (const void *a, int m, MPI_Datatype u, void *b, int n, MPI_Datatype t, int r, MPI_Comm c),
      (a, m, u, b, n, t, r, c), b, n, t)
AFTER(Scatterv, (const void *a, const int *m, const int *o, MPI_Datatype u, void *b, int n, MPI_Datatype t, int r,
      MPI_Comm c), (a, m, o, u, b, n, t, r, c), b, n, t)
AFTER(Allgather, (const void *a, int m, MPI_Datatype u, void *b, int n, MPI_Datatype t, MPI_Comm c),
      (a, m, u, b, n, t, c), b, n, t)
AFTER(Allgatherv, (const void *a, int m, MPI_Datatype u, void *b, const int *n, const int *o, MPI_Datatype t,
      MPI_Comm c), (a, m, u, b, n, o, t, c), b, m, u)
AFTER(Alltoall, (const void *a, int m, MPI_Datatype u, void *b, int n, MPI_Datatype t, MPI_Comm c),
      (a, m, u, b, n, t, c), b, n, t)
AFTER(Alltoallv, (const void *a, const int *m, const int *p, MPI_Datatype u, void *b, const int *n, const int *o,
      MPI_Datatype t, MPI_Comm c), (a, m, p, u, b, n, o, t, c), b, n[0], t)
AFTER(Alltoallw, (const void *a, const int *m, const int *p, const MPI_Datatype *u, void *b, const int *n,
      const int *o, const MPI_Datatype *t, MPI_Comm c), (a, m, p, u, b, n, o, t, c), b, n[0], t[0])
AFTER(Reduce, (const void *a, void *b, int n, MPI_Datatype t, MPI_Op o, int r, MPI_Comm c), (a, b, n, t, o, r, c), b, n, t)
AFTER(Allreduce, (const void *a, void *b, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c), (a, b, n, t, o, c), b, n, t)
AFTER(Reduce_scatter, (const void *a, void *b, const int *n, MPI_Datatype t, MPI_Op o, MPI_Comm c),
      (a, b, n, t, o, c), b, n[0], t)
AFTER(Reduce_scatter_block, (const void *a, void *b, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c),
      (a, b, n, t, o, c), b, n, t)
AFTER(Scan, (const void *a, void *b, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c), (a, b, n, t, o, c), b, n, t)
AFTER(Exscan, (const void *a, void *b, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c), (a, b, n, t, o, c), b, n, t)
"""


def case_damaged_contents_are_found(session):
    """Every test that verifies contents reports a damaged byte, in its output and exit code."""
    names = sorted(set(_list(session)) - {"floor", "copy"} - UNCHECKED - NO_MESSAGES)
    library = os.path.join(session.folder, "corrupt.so")
    command = [session.mpicc, "-shared", "-fPIC", "-o", library, "-x", "c", "-"]
    made = subprocess.run(command, input=CORRUPT, capture_output=True, text=True)
    if made.returncode:
        return made.stderr
    preload = ["--mpiexec-arg=-x", f"--mpiexec-arg=LD_PRELOAD={library}"]
    arguments = [*names, "--check", "--iterations", "20", "--rounds", "1", "--sizes", "5120", *preload]
    outcome, problem, report = _measure(session, arguments, code=1)
    if problem or "wrong contents" not in outcome.err:
        return problem or "wrong contents are not named", outcome.text()
    unseen = {case["test"] for case in report["cases"] if case["checked"] is not False}
    return (f"not found by {sorted(unseen)}" if unseen else None), outcome.text()


def _program(session):
    """The benchmark program alone, compiled."""
    folder = os.path.join(ROOT, "crates", "bench", "program")
    binary = os.path.join(session.build, "bench-program")
    sources = sorted(glob.glob(os.path.join(folder, "*.c")))
    headers = glob.glob(os.path.join(folder, "*.h"))
    complaint = program.build(binary, [session.mpicc, *program.FLAGS, "-o", binary, *sources, "-lm"], sources + headers)
    if complaint:
        raise RuntimeError(f"the benchmark program does not compile: {complaint}")
    return binary


def case_list_is_the_programs(session):
    """The tool's table and the program's list name the same tests."""
    outcome = session.mpirun(1, [_program(session), "--list"]).finish()
    own = {json.loads(line)["test"] for line in outcome.out.splitlines()}
    listed = set(_list(session)) - {"floor", "copy"}
    return outcome.problem() or (None if own == listed else f"{own} is not {listed}")


@sliced
def case_program_refuses_bad_arguments(session):
    """The program reports the error once, and every rank ends."""
    binary = _program(session)
    for arguments in (["latency", "--sizes", "2G"], ["latency", "--iterations", "0"], ["nonsense"], ["latency", "--sizes"], []):
        outcome = session.mpirun(2, [binary, *arguments]).finish()
        if outcome.code != 2 or outcome.err.count("bench: ") != 1:
            return f"{arguments}: {outcome.text()}"
    return None


@sliced
def case_sample_carries_no_more_bytes_than_asked(session):
    """Operations of a sample are halved until it fits, equally for every library; at least one is left."""
    binary = _program(session)
    words = ["rate", "--sizes", "8,1K", "--timing", "batch=16", "--sample-bytes", "1100", "--iterations", "40", "--floor", "no"]
    outcome = session.mpirun(2, [binary, *words]).finish()
    events = [json.loads(line) for line in outcome.out.splitlines() if line.startswith('{"event":"case"')]
    operations = [event["timing"]["operations_per_sample"] for event in events]
    return outcome.problem() or (None if operations == [2, 1] else f"operations are {operations}")


def case_first_run_says_that_it_compiles(session):
    """Only the first run compiles the program."""
    command = [os.path.join(session.prefix, "bin", "fastpath"), "bench", "barrier", "--duration", "1ms", "--no-progress"]
    said = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            terminal, errors = pty.openpty()
            environment = {**os.environ, "XDG_CACHE_HOME": folder}
            done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors, timeout=120)
            os.close(errors)
            said.append(_read_terminal(terminal))
            if done.returncode:
                return f"exit code {done.returncode}: {said}"
    return None if "compiling" in said[0] and said[1] == "" else f"printed {said}"


def case_progress_leaves_no_text_in_tables(session):
    """At a terminal, the progress bar is cleared before each line of a table, also below the table."""
    command = [os.path.join(session.prefix, "bin", "fastpath"), "bench", "latency", "--sizes", "8,64K", "--duration", "50ms"]
    command += ["--explain"]
    screen = _at_terminal(session, command)
    lines = [_render(line) for line in screen.split("\n")]
    if not any("Timing added" in line for line in lines) or "\r" not in screen.replace("\r\n", ""):
        return f"neither a progress bar nor the lines below the table were printed: {screen!r}"
    stale = [line for line in lines if re.search("[\u2588\u2591]", line)]
    return f"progress text stays in {stale}" if stale else None


def case_audit_says_that_it_reads_the_terminal(session):
    """At a terminal, `fastpath audit` prints what it waits for; with a pipe it prints only the findings."""
    command = [os.path.join(session.prefix, "bin", "fastpath"), "audit"]
    screen = _at_terminal(session, command, b"# Size  Latency (us)\n8  1.25\n16  1.50\n\x04")
    piped = subprocess.run(command, input=b"8 1.25\n16 1.50\n", capture_output=True, timeout=60)
    right = "reading standard input" in screen and not piped.stderr and piped.returncode == 0
    return None if right else f"printed {screen!r}, and with a pipe {piped.stderr}"


def _at_terminal(session, command, typed=b""):
    """Returns what a command prints at a terminal of 100 columns, on which `typed` is entered."""
    environment = {**os.environ, "XDG_CACHE_HOME": os.path.join(session.build, "cache"), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))
    with subprocess.Popen(command, env=environment, stdin=terminal, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        os.write(screen, typed)
        printed = _read_terminal(screen)
        process.wait(timeout=120)
    return printed


def _render(line):
    """Returns what stays of a line on a terminal after carriage returns and erasures."""
    shown, column = "", 0
    for part in re.split("(\r|\x1b\\[2?K)", line):
        if part == "\r":
            column = 0
        elif part.startswith("\x1b["):
            shown = ""
        else:
            shown = shown[:column].ljust(column) + part + shown[column + len(part):]
            column += len(part)
    return shown


def _read_terminal(terminal):
    """Returns the text written to a pipe whose other end is closed."""
    text = b""
    try:
        while part := os.read(terminal, 4096):
            text += part
    except OSError:
        pass
    os.close(terminal)
    return text.decode(errors="replace")


def case_summary(session):
    """One screen: latency, floor, a verdict or a note that the machine is busy, a chart in the characters of the
    locale; and the page."""
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        page = os.path.join(folder, "page.html")
        command = [os.path.join(session.prefix, "bin", "fastpath"), "bench", "pingpong", "--summary", "--duration", "1ms"]
        for locale in ("C", "C.UTF-8"):
            environment = {"XDG_CACHE_HOME": os.path.join(session.build, "cache"), "LC_ALL": locale}
            outcome = job.run([*command, "--html", page], env=environment, timeout=120)
            outcome.err = COMPILING.sub("", outcome.err)
            lines = outcome.out.splitlines()
            # In a millisecond on a busy machine, the floor may have no sample.
            is_busy = "The machine is busy" in outcome.out
            right = (lines and lines[0].startswith("Message latency")
                     and (lines[1].startswith("Hardware floor") or is_busy)
                     and (is_busy or "times the floor" in outcome.out)
                     and len(lines) <= 24 and max(map(len, lines)) < 80 and outcome.out.isascii() == (locale == "C"))
            problems += [problem for problem in [outcome.problem()] if problem]
            problems += [] if right else [f"{locale}: {outcome.out}"]
        with open(page, encoding="utf-8") as file:
            problems += [] if "<svg" in file.read() else ["the page has no curve"]
    refused = _finish(session, ["rate", "--summary"])
    problems += [] if refused.code == 2 and "ping-pong" in refused.err else [refused.text()]
    return "; ".join(problems) or None


def case_size_beyond_memory(session):
    """Buffers that exceed memory: the case is missing with its reason, the others are measured."""
    _, problem, report = _measure(session, ["alltoall", "barrier", "-n", "64", "--sizes", "512M", "--duration", "1ms"])
    if problem:
        return problem
    reasons = [entry["reason"] for entry in report["missing"]]
    right = len(reasons) == 1 and "memory available" in reasons[0] and report["cases"][0]["test"] == "barrier"
    return None if right else f"missing {reasons}"


def case_touched(session):
    """Messages that are written and read are separate cases, and a test without them reports that."""
    arguments = ["latency", "rate", "--touch", "--check", "--duration", "2ms", "--sizes", "0,5,5000"]
    _, problem, report = _measure(session, arguments)
    if problem:
        return problem
    cases = [(c["test"], c["variant"], c["bytes"], c["checked"]) for c in report["cases"]]
    missing = {entry["test"]: entry["reason"] for entry in report["missing"]}
    right = cases == [("latency", "touched", size, True) for size in (0, 5, 5000)] and "--touch" in missing.get("rate", "")
    return None if right else f"{cases}, missing {missing}"


def case_levels_at_once(session):
    """All levels in one run: equal sizes at each, by one protocol under one name, contents verified."""
    sizes = [0, 8, 100, 5000]
    asked = ",".join(map(str, sizes))
    for words in (["all"], ["transport", "protocol", "mpi"]):
        arguments = ["latency", "--level", ",".join(words), "--check", "--duration", "2ms", "--sizes", asked]
        _, problem, report = _measure(session, arguments)
        if problem:
            return problem
        cases = [(c["level"], c["bytes"], c["checked"]) for c in report["cases"]]
        if cases != [(level, size, True) for level in ("transport", "protocol", "mpi") for size in sizes]:
            return f"{words}: {cases}"
        for size in sizes:
            ways = {c["level"]: (c["protocol"], c["protocol_sizes"]) for c in report["cases"] if c["bytes"] == size}
            if len(ways) != 3 or len(set(map(str, ways.values()))) != 1:
                return f"{size} B: {ways}"
    return None


def case_instructions_by_level(session):
    """Below MPI: instructions of each level for a message, a put and a flush. A level takes fewer than the level above
    it. One-sided operations of 1 KiB are not compared: nearly all of their instructions are in `memcpy`, and depend on
    the addresses."""
    _, problem, report = _measure(session, ["instructions", "--level", "transport,protocol", "--sizes", "8,1K"])
    if problem:
        return problem
    totals = {(b["level"], b["operation"], b["bytes"]): b["total"] for b in report["breakdowns"]}
    for size in (8, 1024):
        for operation in ("send", "receive"):
            bare, whole = (totals.get((level, operation, size), 0) for level in ("transport", "protocol"))
            if not 10 < bare < whole < 1000:
                return f"{operation}, {size} B: {bare} on the transport, {whole} with the protocol"
        for operation in ("put, load-store", "get, load-store", "flush, load-store"):
            bare, whole = (totals.get((level, operation, size), 0) for level in ("transport", "protocol"))
            fewer = bare < whole or size == 1024
            if not (1 <= bare < 1000 and 1 <= whole < 1000 and fewer):
                return f"{operation}, {size} B: {bare} on the transport, {whole} with the protocol"
    levels = {part["level"] for b in report["breakdowns"] for part in b.get("parts", [])}
    if "program" in levels or not {"transport", "protocol"} <= levels:
        return f"levels are {levels}"
    return None


# The levels have the order of their instructions only in the shipped build of the tools.
case_instructions_by_level.long = True


@sliced
def case_peer_that_fails_leaves_the_counts_of_ours(session):
    """The counts of this library are printed, the other library is named, and the exit code reports the failure."""
    missing = os.path.join(session.folder, "missing", "mpicc")
    outcome, problem, report = _measure(session, ["instructions", "--level", "mpi", "--peer", f"none={missing}"], code=1)
    if problem or "none" not in outcome.err or missing not in outcome.err:
        return problem or "the peer is not named", outcome.text()
    counted = {(b["mpi"], b["operation"]) for b in report["breakdowns"]}
    return None if ("fastpath", "MPI_Send") in counted else f"counted {counted}"


@sliced
def case_ablation_alternates(session):
    """Every step after the first is reported as a ratio to the one before, from runs in the same turns."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ablation.json")
        arguments = ["ablation", "--turns", "2", "--no-instructions", "--duration", "2ms", "--sizes", "8,4K", "--json", path]
        outcome = _finish(session, arguments)
        problem = outcome.problem(0)
        if problem:
            return problem
        with open(path, encoding="utf-8") as file:
            steps = json.load(file)["ablation"]
    if steps[0].get("changes") or len(steps[0]["disabled"]) != len(steps) - 1:
        return f"first step: {steps[0]['disabled']}"
    for step in steps[1:]:
        changes = [(change["test"], change["bytes"], bool(change["ratio"]["interval"])) for change in step["changes"]]
        if changes != [("latency", 8, True), ("latency", 4096, True), ("rate", 8, True)]:
            return f"{step['added']}: {changes}"
    return None


def _wait_for(condition, seconds, what):
    """Waits until the condition holds, or a time limit ends it."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"{what} did not come")
        time.sleep(0.01)


def _read_so_far(running):
    """Output printed so far."""
    return os.pread(running.out.fileno(), 1 << 20, 0).decode(errors="replace")


@sliced
def case_run_that_is_interrupted(session):
    """A signal to end a run: the results so far are written, the ranks are gone, the exit code reports it."""
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "result.json")
    running = _start(session, folder, ["rate", "--sizes", "8", "--intervals", "endless", "--duration", "50ms", "--json", path])

    try:
        _wait_for(lambda: "interval 2" in _read_so_far(running), 60, "a second interval")
        os.kill(running.process.pid, signal.SIGTERM)
        outcome = running.finish()
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    finally:
        running.kill_all()
        shutil.rmtree(folder)
    if outcome.code != 128 + signal.SIGTERM or "interrupted by signal 15" not in outcome.err or outcome.left:
        return outcome.text()
    variants = [case["variant"] for case in report["cases"]]
    right = variants[:2] == ["interval 1", "interval 2"] and report["missing"][0]["test"] == "rate"
    # Without --check, no interval is reported as wrong.
    checks = [case["checked"] for case in report["cases"]]
    return None if right and not any(check is False for check in checks) else f"kept {variants}, {checks}, missing {report['missing']}"


def _names_in(folder):
    return [name for name in os.listdir(folder) if not os.path.islink(os.path.join(folder, name))]


def _measures_without_name(running):
    """Stops all processes of a run. They stay stopped if one has its file open and no file has a name; otherwise
    they continue."""
    pids = [pid for pid, _ in running.processes()]
    signal_all(pids, signal.SIGSTOP)
    files = []
    for pid in pids:
        with contextlib.suppress(OSError):
            files += [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
    is_open = any("/fastpath-bench." in name and name.endswith("/file (deleted)") for name in files)
    if is_open and not _names_in(running.tmp):
        return True
    signal_all(pids, signal.SIGCONT)
    return False


def case_file_has_no_name(session):
    """While files are measured, no file has a name. A killed run leaves nothing, and a link that another user puts
    in the file's place is not followed."""
    folder = tempfile.mkdtemp()
    precious = os.path.join(folder, "precious")
    with open(precious, "w", encoding="utf-8") as file:
        file.write("precious")
    running = _start(session, folder, ["file-write", "--sizes", "4K,64K", "--duration", "1s", "--no-floor"])
    try:
        last = running.process.pid
        for pid in range(last, last + 4000):
            os.symlink(precious, os.path.join(running.tmp, f"fastpath-bench.{pid}"))
        # A case creates its file within milliseconds, during which it has a name.
        _wait_for(lambda: _measures_without_name(running), 60, "a case whose file has no name")
        os.kill(running.process.pid, signal.SIGKILL)
        running.kill_all()
        names = _names_in(running.tmp)
        running.finish()
        with open(precious, "rb") as file:
            held = file.read()
    finally:
        running.kill_all()
        shutil.rmtree(folder)
    if held != b"precious":
        return f"a link was followed: its file holds {len(held)} bytes"
    return f"left behind: {names}" if names else None


def case_rank_that_dies(session):
    """A rank is killed in the middle: results are kept, its end is reported with the rank, and the exit code reports
    it."""
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "result.json")
    running = _start(session, folder, ["latency", "rate", "--sizes", "8,64", "--duration", "2s", "--json", path])

    try:
        # One case is complete, the next is being measured.
        _wait_for(lambda: re.search(r"^ +8 ", _read_so_far(running), re.MULTILINE), 60, "a first case")
        ranks = [pid for pid, command in running.processes() if re.match(r"\S*/bench-[0-9a-f]+ ", command)]
        if len(ranks) != 2:
            return f"ranks are {ranks}: {running.processes()}"
        os.kill(ranks[-1], signal.SIGKILL)
        outcome = running.finish()
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    finally:
        running.kill_all()
        shutil.rmtree(folder)
    if outcome.code != 1 or "signal 9" not in outcome.err:
        return f"exit code {outcome.code}: {outcome.err}"
    kept = [(case["test"], case["bytes"]) for case in report["cases"]]
    unmeasured = {entry["test"] for entry in report["missing"]}
    return None if ("latency", 8) in kept and "rate" in unmeasured else f"kept {kept}, missing {unmeasured}"
