"""The cases of tests/vm/cases, and what is right about how one went.

A file is TOML; a table is a case:

    [send_lat]
    command = "pair ib_send_lat -n 200"    # what bash is given, in the root of the tree; required
    timeout = 60       # seconds after which it counts as hanging
    exit = 0           # exit code that is right
    expect = "regex"   # what must be found in its output (standard output and error, one after the other)
    netem = "loss 10%" # what tc's netem does on both ends of the wire meanwhile
    hosts = 2          # two virtual hosts: `on a COMMAND`, `on b COMMAND`
    hydra = true       # Hydra is there: `nodes RANKS COMMAND` starts ranks on both hosts, which share no memory then
    programs = ["x"]   # programs of tests/c, compiled; found by name; "bench": the program behind `fastpath bench`
    files = ["x/y"]    # further files or folders of the tree
    python = true      # Python and its library are there
    cargo = { rc_tests = "-p fastpath-transport --lib" }     # test binaries of crates, by the name they shall have
    long = true        # shows with more data what another case shows: only with --all, or where it is named
    beside = true      # in the short run, another that says so may run at the same time
    only = "vm"        # it changes the machine, or looks at it: never run on a real adapter's host
    fails = "regex"    # the case is a test of this test bed: it must fail, and be said to fail like this
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
# Like no program of tests/c.
BENCH = "bench"
# How much longer a program may take under emulation.
SLOWNESS = 4
KINDS = {"command": str, "timeout": int, "exit": int, "expect": str, "netem": str, "hosts": int, "programs": list,
         "files": list, "cargo": dict, "fails": str, "only": str, "python": bool, "hydra": bool, "long": bool, "beside": bool}


class Case:
    def __init__(self, name, values):
        self.name = name
        for key, value in values.items():
            if not isinstance(value, KINDS.get(key, ())):
                raise Trouble(f"{name}: {key} = {value!r} is unknown or of the wrong kind", "tests/vm/suite.py describes the keys")
            if key in ("expect", "fails"):
                try:
                    re.compile(value)
                except re.error as error:
                    raise Trouble(f"{name}: {key}: {error}", "correct the regular expression") from None
        if "command" not in values:
            raise Trouble(f"{name} has no command", "tests/vm/suite.py describes the keys")
        self.command = values["command"]
        self.timeout, self.exit = values.get("timeout", 60), values.get("exit", 0)
        self.expect, self.fails = values.get("expect"), values.get("fails")
        self.netem, self.hosts = values.get("netem", ""), values.get("hosts", 1)
        if values.get("only", "vm") != "vm":
            raise Trouble(f"{name}: only = {values['only']!r}", 'it can only be "vm"')
        self.needs_vm, self.python, self.long = "only" in values, values.get("python", False), values.get("long", False)
        self.beside, self.hydra = values.get("beside", False), values.get("hydra", False)
        if self.beside and (self.netem or self.hosts != 1):
            raise Trouble(f"{name}: beside another case it would have neither netem nor hosts of its own", "leave `beside` out")
        self.programs, self.files, self.cargo = (values.get("programs", []), values.get("files", []), values.get("cargo", {}))

    def problem(self, result):
        """One line that says what is wrong with how it went, or None."""
        wrong = self._wrong(result)
        if self.fails is None:
            return wrong
        if wrong is None:
            return f"it should have failed by {self.fails!r}"
        return None if re.search(self.fails, wrong) else f"it should have failed by {self.fails!r}, not: {wrong}"

    def _wrong(self, result):
        lines = [line.strip() for line in result.output.splitlines() if line.strip()]
        # What a person would look at first.
        signs = [line for line in lines if re.search(r"error|fail|panicked|assert", line, re.IGNORECASE)] or lines[-1:]
        hint = "".join(f": {line[:200]}" for line in signs[:1])
        if result.late:
            return f"hangs: ended after {self.timeout} s{hint}"
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
    """The programs of tests/c that run on two ranks, as cases: with nothing but each of these transports. `hydra`: the
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
    """Collects what the cases print and how each went; `told` is called with case and result at the end of each."""

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
        """A case is told of once its result and all its output are here, which come on channels of their own."""
        for name in list(self._ended):
            output, mark, rest = self._text.partition(f"\x1e{name}\n".encode())
            if not mark:
                return
            self._text = rest
            self._told(self._cases[name], Result(*self._ended.pop(name), output.decode(errors="replace")))

    def cut_short(self, words, accelerator):
        """The machine ended, or was ended, before it was done."""
        if not self._up:
            return NotUp(f"the machine does not come up ({accelerator})\n{words}", "see the end of its console above")
        where = f"in {' and '.join(self._running)}" if self._running else "between two cases"
        said = self._text.decode(errors="replace")[-2000:]
        return Trouble(f"the machine stopped {where}\n{said}\n--- its console\n{words}", "see what its kernel says above")


def compile_program(name, prefix, build):
    """The binary of a program of tests/c, or of the benchmark program."""
    if name == BENCH:
        return _compile_bench(prefix, build)
    one = program.Program(program.source(name))
    complaint = one.compile(os.path.join(prefix, "bin", "mpicc"), build)
    if complaint:
        raise Trouble(f"{name}.c does not compile: {complaint}", "see the compiler's words")
    return one.binary


def _compile_bench(prefix, build):
    folder = os.path.join(ROOT, "crates", "bench", "program")
    sources = sorted(glob.glob(os.path.join(folder, "*.c")))
    binary = os.path.join(build, BENCH)
    words = [os.path.join(prefix, "bin", "mpicc"), "-std=gnu11", "-O2", "-o", binary, *sources, "-lm"]
    complaint = program.build(binary, words, sources + glob.glob(os.path.join(folder, "*.h")))
    if complaint:
        raise Trouble(f"the benchmark program does not compile: {complaint}", "see the compiler's words")
    return binary


@functools.cache
def build_tests(arguments):
    """The test binary of a crate that cargo makes for `arguments`."""
    words = ["cargo", "test", "--no-run", "--message-format=json", *arguments.split()]
    made = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if made.returncode != 0:
        raise Trouble(f"{' '.join(words)} fails\n{made.stderr}", "see the compiler's words")
    messages = [json.loads(line) for line in made.stdout.splitlines() if line.startswith("{")]
    found = [message["executable"] for message in messages if message.get("executable") and message["profile"]["test"]]
    if len(found) != 1:
        raise Trouble(f"cargo test {arguments} makes {len(found)} binaries", "name one by --lib or --test NAME")
    return found[0]
