"""Runs the cases on an adapter of this machine, without a virtual one."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time

from harness import processes

from . import suite
from .contents import GUEST, ROOT
from .trouble import Trouble

VARIABLE = "FASTPATH_TEST_DEVICE"


def name():
    """The adapter to use, or None."""
    return os.environ.get(VARIABLE) or None


def _environment(path=()):
    device = name()
    if not os.path.isdir(f"/sys/class/infiniband/{device}"):
        there = sorted(os.listdir("/sys/class/infiniband")) if os.path.isdir("/sys/class/infiniband") else []
        raise Trouble(f"{VARIABLE}={device}: this machine has no such adapter", f"set it to one of: {' '.join(there) or 'none exists'}")
    env = {key: value for key, value in os.environ.items() if key != VARIABLE}
    # The second name is for jobs of cases that name no device.
    env.update({"MPI_TEST_DEVICES": f"{device} {device}", "FASTPATH_DEVICE": device})
    env["PATH"] = ":".join([os.path.join(GUEST, "bin"), *path, env.get("PATH", "")])
    return env


def run(words, variables):
    """Runs one command, with the adapter's name in its environment; returns its exit code."""
    env = {**_environment(), **dict(pair.split("=", 1) for pair in variables)}
    return subprocess.call(words if len(words) > 1 else ["bash", "-c", words[0]], env=env)


def run_cases(cases, told, prefix):
    """Runs the cases that need neither a wire nor virtual hosts; prints the number of the others, and their names."""
    path = [os.path.join(prefix, "bin"), os.path.join(ROOT, "build", "tests")]
    env = {key: value for key, value in _environment(path).items() if key == "FASTPATH_DEVICE" or not key.startswith("FASTPATH_")}
    skipped = 0
    for case in cases:
        reasons = [word for word, there in [("netem", case.netem), ("two hosts", case.hosts == 2),
                                             ("a virtual machine", case.needs_vm)] if there]
        if reasons:
            print(f"SKIP {case.name}: needs {' and '.join(reasons)}", flush=True)
            skipped += 1
            continue
        told(case, _run_case(case, env, prefix))
    return skipped


def _run_case(case, env, prefix):
    for program in case.programs:
        suite.compile_program(program, prefix, os.path.join(ROOT, "build", "tests"))
    folder = os.path.join(ROOT, "build", "tests", "vm")
    os.makedirs(folder, exist_ok=True)
    for link, arguments in case.cargo.items():
        path = os.path.join(folder, link)
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink(suite.build_tests(arguments), path)
    since, late = time.monotonic(), False
    # A file instead of a pipe: processes left behind must not block the reader.
    with tempfile.TemporaryFile() as output:
        started = subprocess.Popen(["bash", "-c", case.command], cwd=ROOT, env={**env, "PATH": f"{folder}:{env['PATH']}"},
                                   stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
        try:
            code = started.wait(case.timeout)
        except subprocess.TimeoutExpired:
            late = True
            os.killpg(started.pid, signal.SIGKILL)
            code = started.wait()
        seconds, left = time.monotonic() - since, _left_behind(started.pid)
        output.seek(0)
        text = output.read().decode(errors="replace")
    return suite.Result(code if code >= 0 else 128 - code, seconds, late, left, text)


def _left_behind(session):
    """Processes of a session whose leader has ended; ending ones get a moment, the others are killed."""
    end = time.monotonic() + 1
    while (found := processes.find(lambda pid: processes.stat(pid)[3:4] == [str(session)])) and time.monotonic() < end:
        time.sleep(0.01)
    for process in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return " ".join(f"{process} ({command})" for process, command in found.items())
