"""C programs that are tests, and the line of data at the head of each.

    test: ranks=1,2,3,4,8 timeout=60 env=NAME=VALUE args=WORDS link=-lm

    ranks      how many ranks it is run with, each in a job of its own
    timeout    seconds before the launcher ends it (60)
    args       its arguments, separated by commas; several lists, separated by semicolons, are a run each
    env        a variable for every run; may stand several times
    link       a word for the compiler; may stand several times
    stderr     `any`: it may print to standard error
    exit       exit code that is right (0)
    only       `all`: only in the long run; `build`: compiled for other tests, never run by itself
    variants   `none`: not run with the optimisations off or with other ways to wait
    within     `node`: it is about what ranks of one node share, so that it is not run by other transports
    mistakes   `yes`: it makes mistakes on purpose, so that it is not run where FASTPATH_CHECK tells of them
"""

import os
import re
import subprocess
import zlib

KEYS = {"ranks", "timeout", "args", "env", "link", "stderr", "exit", "only", "variants", "mistakes", "within"}
FLAGS = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]
IMMEDIATE_OFF = "sendi,recvi,directed,immediate-datatype"

# Name, variables, and the largest number of ranks it is run with.
VARIANTS = [
    ("immediate-off", {"FASTPATH_DISABLE": IMMEDIATE_OFF}, 8),
    ("check", {"FASTPATH_CHECK": "1"}, 3),
    ("yield", {"FASTPATH_WAIT": "yield"}, 8),
    ("sleep", {"FASTPATH_WAIT": "sleep"}, 8),
    ("workers", {"FASTPATH_WORKERS": "several"}, 4),
    ("workers-sleep", {"FASTPATH_WORKERS": "several", "FASTPATH_WAIT": "sleep"}, 3),
    ("progress", {"FASTPATH_PROGRESS": "thread"}, 8),
    ("tcp", {"FASTPATH_TRANSPORTS": "tcp"}, 3),
    ("spin", {"FASTPATH_WAIT": "spin"}, 2),
    ("immediate-off-sleep", {"FASTPATH_DISABLE": IMMEDIATE_OFF, "FASTPATH_WAIT": "sleep"}, 8),
    *((f"without-{name}", {"FASTPATH_DISABLE": name}, 3) for name in [*IMMEDIATE_OFF.split(","), "cma", "direct", "pipeline", "prefetch,demote,pause", "drain", "adapt", "oversubscription"]),
]


def read(path):
    """What is in the file; nothing where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def build(binary, command, sources):
    """Runs the compiler, its first word, if anything is newer than what it made of it; returns what it said."""
    mpicc = command[0]
    prefix = os.path.dirname(os.path.dirname(mpicc))
    # The header and the library may have changed with the installation.
    installed = [mpicc, os.path.join(prefix, "include", "mpi.h"), os.path.join(prefix, "lib", "libmpi_abi.so")]
    newest = max(os.stat(path).st_mtime for path in [*sources, *filter(os.path.exists, installed)])
    # A program finds the library of the installation whose compiler made it.
    by = binary + ".by"
    if os.path.exists(binary) and os.stat(binary).st_mtime > newest and read(by) == " ".join(command):
        return None
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode != 0:
        return made.stderr or f"{mpicc} fails"
    with open(by, "w", encoding="utf-8") as file:
        file.write(" ".join(command))
    return None


class Program:
    def __init__(self, path):
        self.path = path
        self.name = os.path.splitext(os.path.basename(path))[0]
        self.ranks, self.timeout, self.args, self.env, self.link = [1, 2, 3, 4], 60, [[]], {}, []
        self.quiet, self.exit, self.only, self.has_variants = True, 0, "", True
        self.has_mistakes = self.within = False
        with open(path, encoding="utf-8") as file:
            head = file.read(4096)
        for line in re.findall(r"^[ /*]*test: (.*?)(?:\*/)?$", head, re.MULTILINE):
            for word in line.split():
                self._read(word)

    def _read(self, word):
        key, _, value = word.partition("=")
        if key not in KEYS or not value:
            raise ValueError(f"{self.path}: unknown word {word!r} in its line of data")
        if key == "ranks":
            self.ranks = [int(n) for n in value.split(",")]
        elif key == "timeout":
            self.timeout = int(value)
        elif key == "args":
            self.args = [one.split(",") for one in value.split(";")]
        elif key == "env":
            name, _, content = value.partition("=")
            self.env[name] = content
        elif key == "link":
            self.link.append(value)
        elif key == "stderr":
            self.quiet = value != "any"
        elif key == "exit":
            self.exit = int(value)
        elif key == "only":
            self.only = value
        elif key == "variants":
            self.has_variants = value != "none"
        elif key == "within":
            self.within = value == "node"
        elif key == "mistakes":
            self.has_mistakes = value == "yes"

    def compile(self, mpicc, folder):
        """Compiles it if it is newer than what was made of it; returns what the compiler said."""
        self.binary = os.path.join(folder, self.name + (".so" if "-shared" in self.link else ""))
        with open(self.path, encoding="utf-8") as file:
            included = re.findall(r'#include "([^"]+)"', file.read())
        sources = [self.path] + [os.path.join(os.path.dirname(self.path), name) for name in included]
        return build(self.binary, [mpicc, *FLAGS, "-o", self.binary, self.path, *self.link], sources)

    def runs(self, everything):
        """Each run: name, number of ranks, arguments, variables of the variant."""
        variants = [("", {}, max(self.ranks))]
        if self.has_variants:
            # The short run has the first two, and for each program another one, always the same.
            one = VARIANTS[2 + zlib.crc32(self.name.encode()) % (len(VARIANTS) - 2)]
            variants += VARIANTS if everything else [*VARIANTS[:2], one]
        if self.has_mistakes:
            variants = [variant for variant in variants if variant[0] != "check"]
        if self.within:
            variants = [variant for variant in variants if variant[0] != "tcp"]
        found = []
        for args in self.args:
            for variant, env, most in variants:
                for n in self.ranks:
                    if n <= most and (everything or not variant or n == 2):
                        words = [self.name, *args, f"n={n}", variant]
                        found.append((" ".join(word for word in words if word), n, args, env))
        return found

    def runs_over(self, transports):
        """As `runs`, by other transports than those of a node; nothing where it is about those."""
        if self.within:
            return []
        env = {"FASTPATH_TRANSPORTS": transports}
        return [(" ".join([self.name, *args, f"n={n}", transports]), n, args, env) for args in self.args for n in self.ranks]


def find(folder):
    return [Program(os.path.join(folder, name)) for name in sorted(os.listdir(folder)) if name.endswith(".c")]
