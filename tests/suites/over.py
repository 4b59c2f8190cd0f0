"""Places where a suite's programs run: this host; two virtual hosts, over TCP; the virtual machine of scripts/vm,
over `rc` or `ud` only. Each place has a launcher, `launch [--timeout SECONDS] -n RANKS PROGRAM...`, that distributes
ranks over its hosts."""

import os
import re
import shlex
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from harness import engines  # noqa: E402
from harness.hosts import Hosts, missing  # noqa: E402

# Factor of time limits in the virtual machine.
SLOWNESS = 4
LAUNCH = """#!/bin/bash
# launch [--timeout SECONDS] -n RANKS PROGRAM...
limit=()
[ "$1" != --timeout ] || {{ limit=(--timeout $(($2 * {slowness}))); shift 2; }}
ranks=$2
shift 2
{rest}
"""
ONE_HOST = '{mpiexec} "${{limit[@]}}" -n "$ranks" "$@"'
OVER_TCP = """hosts=h1:$(((ranks + 1) / 2))
[ "$ranks" = 1 ] || hosts+=,h2:$((ranks / 2))
exec {beside} {mpiexec} "${{limit[@]}}" --engine hydra -launcher ssh -launcher-exec {rsh} --host $hosts "$@\""""
TWO_HOSTS = """[ "$ranks" -gt 1 ] || exec {mpiexec} "${{limit[@]}}" -n "$ranks" "$@"
exec {mpiexec} "${{limit[@]}}" --virtual-host a -n $(((ranks + 1) / 2)) on a "$@" : \\
    --virtual-host b -n $((ranks / 2)) on b "$@\""""


class Here:
    """This host."""
    name, is_machine = "", False

    def __init__(self, suite):
        self.suite, self.launcher = suite, os.path.join(suite.work, "launch")
        self.mpiexec = os.path.join(suite.prefix, "bin", "mpiexec")

    def _write(self, rest, slowness=1, **values):
        with open(self.launcher, "w", encoding="utf-8") as file:
            file.write(LAUNCH.format(slowness=slowness, rest=rest.format(mpiexec=self.mpiexec, **values)))
        os.chmod(self.launcher, 0o755)

    def __enter__(self):
        self._write("exec " + ONE_HOST)
        return self

    def run(self, words, seconds, judge, cwd=None, **more):
        """Runs a command; `judge` gets its exit code and output."""
        judge(*self.suite.call(words, cwd, **more))

    def __exit__(self, *_):
        pass


class Tcp(Here):
    """Two virtual hosts, on which Hydra starts the ranks for our launcher. They share no memory."""
    name = "tcp, 2 hosts"

    def __enter__(self):
        self.hosts = Hosts(3)
        path = f"PATH={os.path.dirname(engines.Hydra().mpiexec)}:{os.path.dirname(self.mpiexec)}:{os.environ['PATH']}"
        beside = shlex.join(self.hosts.beside("h0", ["env", path]))
        self._write(OVER_TCP, beside=beside, rsh=self.hosts.rsh)
        return self

    def __exit__(self, *_):
        self.hosts.close()


class Machine(Here):
    """The virtual machine: commands are collected, and run in sequence after the last one is known. A single
    transport connects all ranks, on one host or on two virtual ones."""
    is_machine = True

    def __init__(self, suite, transport, hosts):
        super().__init__(suite)
        self.name = f"{transport}, {hosts} host{'s' * (hosts > 1)}"
        self.transport, self.hosts = transport, hosts
        self.kept, self.seconds, self.files, self.options = [], 0, {self.launcher}, []

    def __enter__(self):
        self._write(TWO_HOSTS if self.hosts == 2 else "exec " + ONE_HOST, SLOWNESS)
        return self

    def run(self, words, seconds, judge, cwd=None, **more):
        self.files.update(word for word in words if os.path.exists(word))
        self.seconds += SLOWNESS * seconds + 10
        variables = [f"{name}={value}" for name, value in more.items()]
        self.kept.append((shlex.join(["env", *variables, *words]), cwd or self.suite.work, judge))

    def __exit__(self, kind, *_):
        if kind or not self.kept:
            return
        script = os.path.join(self.suite.work, "commands")
        with open(script, "w", encoding="utf-8") as file:
            for number, (command, cwd, _) in enumerate(self.kept):
                file.write(f"mkdir -p {cwd}; cd {cwd}\n{command} 2>&1\necho; echo \"@@ {number} $?\"\n")
        words = [os.path.join(ROOT, "scripts", "vm"), "run", "--prefix", self.suite.prefix, "--hosts", str(self.hosts),
                 "--timeout", str(self.seconds), "--env", f"FASTPATH_TRANSPORTS={self.transport}", *self.options]
        for path in sorted({script, *self.files}):
            words += ["--add", path]
        self._judge([*words, f"bash {script}"])

    def _judge(self, words):
        """Reports each command's result as soon as it has ended."""
        with subprocess.Popen(words, cwd=self.suite.work, env=self.suite.environment(), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as machine:
            printed, kept = "", iter(self.kept)
            for line in machine.stdout:
                if end := re.fullmatch(r"@@ (\d+) (\d+)\n", line):
                    next(kept)[2](int(end.group(2)), printed)
                    printed = ""
                else:
                    printed += line
        for command, _, judge in kept:
            judge(-1, f"{printed}\nit did not run, or not to its end: {command}")


def places(suite):
    """Places that --over names, by default this host. Each is a context manager."""
    for word in filter(None, (suite.options.over or "here").split(",")):
        if word == "here":
            yield Here(suite)
        elif word in ("rc", "ud"):
            yield Machine(suite, word, suite.options.hosts)
        elif word != "tcp":
            sys.exit(f"--over {word}: there are tcp, rc and ud")
        elif reason := missing():
            print(f"SKIP {Tcp.name}: virtual hosts are not possible: {reason}")
            suite.is_elsewhere_missing = True
        else:
            yield Tcp(suite)
