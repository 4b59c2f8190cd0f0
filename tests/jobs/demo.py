"""`make demo` after its build: scripts/demo with this installation, and scripts/progress, which prints the build in
one line."""

import os
import pty
import re
import shutil
import signal
import subprocess
import tempfile
import time

from harness import job

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRESS = os.path.join(ROOT, "scripts", "progress")

# Seconds until a hanging case is ended.
SAFETY = 60

# Output of cargo: compiled crates, and a progress line that the next line replaces.
CARGO = r"""printf '   Compiling libc v0.2.0\n    Building [=>    ] 3/7: serde_json, syn\r' >&2"""


def case_result_on_one_screen(session):
    """The simulation with its check, the latency with its floor, the chart, the page, and three commands."""
    folder = os.path.join(session.build, "demo")
    shutil.rmtree(folder, ignore_errors=True)
    words = [os.path.join(ROOT, "scripts", "demo"), session.prefix, folder, "64", "100"]
    environment = {"XDG_CACHE_HOME": os.path.join(session.build, "cache"), "LC_ALL": "C.UTF-8"}
    outcome = job.run(words, env=environment, timeout=180)
    problem = outcome.problem()
    lines = outcome.out.splitlines()
    parts = (r"4 ranks \(examples/heat.c\): done in", r"^  checked: all 4096 points", r"^  Message latency ", r"^  Hardware floor ",
             "[\u2801-\u28ff]", re.escape(os.path.join(folder, "latency.html")), "^Next:")
    missing = [part for part in parts if not re.search(part, outcome.out, re.MULTILINE)]
    if problem or missing:
        return problem or f"no {missing}", outcome.text()
    # The paths of a test are longer than those of `make demo`.
    paths = {folder: "build/demo", session.prefix: "build/demo"}
    wide = [line for line in lines if len(re.sub("|".join(map(re.escape, paths)), lambda path: paths[path[0]], line)) > 80]
    right = not wide and len(lines) <= 40 and len(lines) - lines.index("Next:") == 4
    return None if right and os.path.exists(os.path.join(folder, "latency.html")) else (f"{len(lines)} lines, too wide: {wide}", outcome.text())


case_result_on_one_screen.needs = {"processors": 2}


def case_failure_of_a_step_ends_it(session):
    """On failure, the program's output and exit code are passed on, and nothing is measured."""
    folder = os.path.join(session.build, "demo-fails")
    shutil.rmtree(folder, ignore_errors=True)
    outcome = job.run([os.path.join(ROOT, "scripts", "demo"), session.prefix, folder, "0"], timeout=60)
    right = outcome.code not in (0, None) and "usage: heat" in outcome.out and "latency" not in outcome.out.lower()
    return None if right else outcome.text()


def case_progress_is_one_line_on_a_terminal(session):
    """The crate in progress and the time, in place; the end replaces the line."""
    with tempfile.TemporaryDirectory() as folder:
        fifo = os.path.join(folder, "go")
        os.mkfifo(fifo)
        ours, terminal = pty.openpty()
        words = [PROGRESS, "Build", "sh", "-c", f"{CARGO}; cat {fifo}"]
        environment = {**os.environ, "TERM": "xterm"}
        running = subprocess.Popen(words, stdout=terminal, stderr=terminal, env=environment, start_new_session=True)
        os.close(terminal)
        text, end = "", time.monotonic() + SAFETY
        while "3 of 7: serde_json, syn" not in text:
            text += os.read(ours, 4096).decode()
            if time.monotonic() > end:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
                return f"no progress: {text!r}"
        with open(fifo, "w", encoding="ascii"):
            pass
        try:
            while part := os.read(ours, 4096):
                text += part.decode()
        except OSError:  # the other end is closed
            pass
        os.close(ours)
        code = running.wait()
    right = code == 0 and text.count("\n") == 1 and "Compiling" not in text
    right = right and re.search(r"\rBuild: \d+ s 3 of 7", text) and re.search(r"\x1b\[KBuild: done in \d+ s\r\n$", text)
    return None if right else f"exit code {code}: {text!r}"


def case_progress_is_few_lines_elsewhere(session):
    outcome = job.run([PROGRESS, "Build", "sh", "-c", CARGO])
    right = re.fullmatch(r"Build \.\.\.\nBuild: done in \d+ s\n", outcome.out)
    return outcome.problem() or (None if right else outcome.text())


def case_progress_shows_errors_whole(session):
    """All lines of a compiler's error, the exit code, the --out file; neither compiled crates nor progress."""
    error = "".join(f"error line {number}\n" for number in range(500))
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "error"), "w", encoding="ascii") as file:
            file.write(error)
        script = f"{CARGO}; cat {folder}/error >&2; echo printed; exit 101"
        outcome = job.run([PROGRESS, "--out", os.path.join(folder, "out"), "Build", "sh", "-c", script])
    text = outcome.out
    right = outcome.code == 101 and text.endswith(error) and "exit code 101\nprinted\n" in text and not outcome.left
    right = right and "Compiling" not in text and "Building" not in text
    return None if right else outcome.text()


for _case in (case_progress_is_one_line_on_a_terminal, case_progress_is_few_lines_elsewhere, case_progress_shows_errors_whole):
    _case.needs = {"processors": 0}
