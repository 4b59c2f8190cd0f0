"""The cases of tests/vm/cases, and the checks of their results.

A file is TOML; a table is a case:

    [send_lat]
    command = "pair ib_send_lat -n 200"    # bash command, in the root of the tree; required
    timeout = 60       # seconds until it counts as hanging
    exit = 0           # expected exit code
    expect = "regex"   # must be found in its output (standard output, then standard error)
    netem = "loss 10%" # tc netem on both ends of the wire during the case
    hosts = 2          # two virtual hosts: `on a COMMAND`, `on b COMMAND`
    hydra = true       # with Hydra: `nodes RANKS COMMAND` starts ranks on both hosts, which then share no memory
    programs = ["x"]   # programs of tests/c, compiled; found by name; "bench": the program behind `fastpath bench`
    files = ["x/y"]    # further files or folders of the tree
    python = true      # with Python and its library
    cargo = { rc_tests = "-p fastpath-transport --lib" }     # test binaries of crates, by their name in the machine
    long = true        # a longer form of another case: runs only with --all, or if it is named
    sliced = true      # in the short run, it belongs to one slice (tests/harness/slices.py)
    beside = true      # in the short run, it may run in parallel with another such case
    only = "vm"        # it changes or inspects the machine: never run on a real adapter's host
    fails = "regex"    # the case tests this test bed: it must fail, with this report
"""

import fnmatch
import functools
import glob
import json
import os
import re
import shlex
import subprocess
import tomllib

from harness import program

from .contents import HERE, ROOT
from .machine import NotUp
from .trouble import Trouble

FOLDER = os.path.join(HERE, "cases")
# Name of the benchmark program. No program of tests/c has it.
BENCH = "bench"
# Factor of time limits under emulation.
SLOWNESS = 4
KINDS = {"command": str, "timeout": int, "exit": int, "expect": str, "netem": str, "hosts": int, "programs": list,
         "files": list, "cargo": dict, "fails": str, "only": str, "python": bool, "hydra": bool, "long": bool, "sliced": bool,
         "beside": bool}


class Case:
    def __init__(self, name, values):
        self.name = name
        for key, value in values.items():
            if not isinstance(value, KINDS.get(key, ())):
                raise Trouble(f"{name}: {key} = {value!r} is unknown or of the wrong kind", "correct the case; tests/vm/suite.py describes the keys")
            if key in ("expect", "fails"):
                try:
                    re.compile(value)
                except re.error as error:
                    raise Trouble(f"{name}: {key}: {error}", "correct the regular expression") from None
        if "command" not in values:
            raise Trouble(f"{name} has no command", "correct the case; tests/vm/suite.py describes the keys")
        self.command = values["command"]
        self.timeout, self.exit = values.get("timeout", 60), values.get("exit", 0)
        self.expect, self.fails = values.get("expect"), values.get("fails")
        self.netem, self.hosts = values.get("netem", ""), values.get("hosts", 1)
        if values.get("only", "vm") != "vm":
            raise Trouble(f"{name}: only = {values['only']!r}", 'the only possible value is "vm"')
        self.needs_vm, self.python, self.long = "only" in values, values.get("python", False), values.get("long", False)
        self.sliced = values.get("sliced", False)
        self.beside, self.hydra = values.get("beside", False), values.get("hydra", False)
        if self.beside and (self.netem or self.hosts != 1):
            raise Trouble(f"{name}: a case with `beside` cannot have its own netem or hosts", "omit `beside`")
        self.programs, self.files, self.cargo = (values.get("programs", []), values.get("files", []), values.get("cargo", {}))

    def problem(self, result):
        """One line with what is wrong with the result, or None."""
        wrong = self._wrong(result)
        if self.fails is None:
            return wrong
        if wrong is None:
            return f"it should have failed with {self.fails!r}"
        return None if re.search(self.fails, wrong) else f"it should have failed with {self.fails!r}, not: {wrong}"

    def _wrong(self, result):
        lines = [line.strip() for line in result.output.splitlines() if line.strip()]
        # The most informative lines first.
        signs = [line for line in lines if re.search(r"error|fail|panicked|assert", line, re.IGNORECASE)] or lines[-1:]
        hint = "".join(f": {line[:200]}" for line in signs[:1])
        if result.late:
            return f"hangs: it was ended after {self.timeout} s{hint}"
        if result.code != self.exit:
            return f"exit code {result.code} instead of {self.exit}{hint}"
        if result.left:
            return f"left behind: {result.left}"
        if self.expect and not re.search(self.expect, result.output, re.MULTILINE):
            return f"its output has no {self.expect!r}{hint}"
        return None


class Result:
    def __init__(self, code, seconds, late, left, output):
        self.code, self.seconds, self.late, self.left, self.output = code, seconds, late, left, output


def read_cases(patterns):
    """The cases whose name, FILE.TABLE, matches one of the patterns; all if there are none."""
    found = []
    for name in sorted(os.listdir(FOLDER)):
        if not name.endswith(".toml"):
            continue
        with open(os.path.join(FOLDER, name), "rb") as file:
            try:
                tables = tomllib.load(file)
            except tomllib.TOMLDecodeError as error:
                raise Trouble(f"tests/vm/cases/{name}: {error}", "correct the file") from None
        found += [Case(f"{name[:-5]}.{table}", values) for table, values in tables.items()]
    return [case for case in found if not patterns or any(fnmatch.fnmatch(case.name, p) for p in patterns)]


def program_cases(patterns, transports, hosts, hydra):
    """The programs of tests/c that run on two ranks, as cases, over each of these transports only. `hydra`: the
    hosts share no memory of a job."""
    found = []
    for transport in transports:
        for one in program.find():
            if one.only or one.link or 2 not in one.ranks:
                continue
            for arguments in one.args:
                words = shlex.join([one.name, *arguments])
                where = {1: [], 2: ["nodes" if hydra else "hosts"]}[hosts]
                name = ".".join([transport, *where, one.name, *arguments])
                told = {**one.env, **({"MPI_TEST_HOSTS": "2", "TMPDIR": "/run"} if hosts == 2 else {})}
                variables = shlex.join(["env", *(f"{key}={value}" for key, value in told.items())])
                ranks = {1: f"-n 2 {variables} {words}",
                         2: f"--virtual-host a -n 1 on a {variables} {words} : --virtual-host b -n 1 on b {variables} {words}"}
                seconds = SLOWNESS * one.timeout
                start = f"nodes 1 {variables} {words}" if hydra else f"mpiexec --timeout {seconds} {ranks[hosts]}"
                values = {"command": f"FASTPATH_TRANSPORTS={transport} {start}", "programs": [one.name],
                          "timeout": seconds + 30, "exit": one.exit, "hosts": hosts, "hydra": hydra}
                found.append(Case(name, values))
    return [case for case in found if not patterns or any(fnmatch.fnmatch(case.name, p) for p in patterns)]


class Follower:
    """Collects output and results of the cases; `told` is called with case and result at the end of each."""

    def __init__(self, cases, told):
        self._cases, self._told = {case.name: case for case in cases}, told
        self._text, self._running, self._ended, self._up = b"", [], {}, False

    def output(self, channel, data):
        if channel == "out":
            self._text += data
            self._give_out()

    def event(self, words):
        self._up = True
        if words[0] == "begin":
            self._running.append(words[1])
        if words[0] == "end":
            name, code, milliseconds, late = words[1:5]
            self._ended[name] = (int(code), int(milliseconds) / 1000, late == "late", " ".join(words[5:]).strip())
            self._running.remove(name)
            self._give_out()
        return max((self._cases[name].timeout + 60 for name in self._running), default=None)

    def _give_out(self):
        """Reports a case once its result and all its output are here; they arrive on separate channels."""
        for name in list(self._ended):
            output, mark, rest = self._text.partition(f"\x1e{name}\n".encode())
            if not mark:
                return
            self._text = rest
            self._told(self._cases[name], Result(*self._ended.pop(name), output.decode(errors="replace")))

    def cut_short(self, words, accelerator):
        """Ends the collection after the machine ended, or was ended, too early."""
        if not self._up:
            return NotUp(f"the virtual machine does not start ({accelerator})\n{words}", "read the end of its console above")
        where = f"in {' and '.join(self._running)}" if self._running else "between two cases"
        said = self._text.decode(errors="replace")[-2000:]
        return Trouble(f"the virtual machine stopped {where}\n{said}\n--- its console\n{words}", "read the messages of its kernel above")


def compile_program(name, prefix, build):
    """Binary of a program of tests/c, or of the benchmark program."""
    if name == BENCH:
        return _compile_bench(prefix, build)
    one = program.Program(program.source(name))
    complaint = one.compile(os.path.join(prefix, "bin", "mpicc"), build)
    if complaint:
        raise Trouble(f"{name}.c does not compile: {complaint}", "correct the errors of the compiler")
    return one.binary


def _compile_bench(prefix, build):
    folder = os.path.join(ROOT, "crates", "bench", "program")
    sources = sorted(glob.glob(os.path.join(folder, "*.c")))
    binary = os.path.join(build, BENCH)
    words = [os.path.join(prefix, "bin", "mpicc"), "-std=gnu11", "-O2", "-o", binary, *sources, "-lm"]
    complaint = program.build(binary, words, sources + glob.glob(os.path.join(folder, "*.h")))
    if complaint:
        raise Trouble(f"the benchmark program does not compile: {complaint}", "correct the errors of the compiler")
    return binary


@functools.cache
def build_tests(arguments):
    """Test binary of a crate: `arguments` are `-p CRATE` and its target. Cargo builds it for the whole workspace, whose
    features are those of `make test-crates`: otherwise it would compile all lower crates again."""
    _, crate, *target = arguments.split()
    words = ["cargo", "test", "--workspace", "--no-run", "--message-format=json", *target]
    made = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if made.returncode != 0:
        raise Trouble(f"{' '.join(words)} fails\n{made.stderr}", "correct the errors of the compiler")
    messages = [json.loads(line) for line in made.stdout.splitlines() if line.startswith("{")]
    folder = os.path.join(ROOT, "crates", crate.removeprefix("fastpath-")) + os.sep
    found = [message["executable"] for message in messages if message.get("executable") and message["profile"]["test"]
             and message["manifest_path"].startswith(folder)]
    if len(found) != 1:
        raise Trouble(f"cargo test {arguments} builds {len(found)} binaries instead of one", "select one with --lib or --test NAME")
    return found[0]
