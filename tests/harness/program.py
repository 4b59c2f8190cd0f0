"""Programs of tests/c and tests/fortran, by name, and the data line at the head of each. A folder of tests/c is a chapter
of the standard or a subject; `fixtures` has programs that other tests compile. Names are unique over all folders of a
language. A Fortran source is preprocessed, and its data line is a comment.

    test: ranks=1,2,3,4,8 timeout=60 env=NAME=VALUE args=WORDS link=-lm

    ranks      numbers of ranks, each for a separate job
    timeout    seconds before the launcher ends it (60)
    args       its arguments, separated by commas; lists separated by semicolons give one run each
    env        a variable for every run; may be repeated
    link       an argument for the compiler; may be repeated
    methods    Fortran: the program is compiled for each of these methods, separated by commas: mpif.h, mpi, mpi_f08. The
               method is the end of the program's name. Without it the source names its method
    with       Fortran: a C source of the same folder, compiled by mpicc and linked
    stderr     `any`: it may print to standard error
    exit       expected exit code (0)
    only       `all`: only in the long run; `build`: compiled for other tests, never run by itself
    variants   `none`: not run with optimisations off or other wait modes; or further variants, separated by commas,
               that run with every change
    needs      processors on which it computes or spins, 0 if it only waits (default: one for each rank); `machine`: it
               measures, so no other test may run at the same time
    within     `node`: its subject is shared memory of a node, so it is not run over other transports
    mistakes   `yes`: it contains deliberate mistakes, so it is not run with FASTPATH_CHECK
"""

import contextlib
import fcntl
import functools
import os
import re
import subprocess

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER, FORTRAN = os.path.join(TESTS, "c"), os.path.join(TESTS, "fortran")
KEYS = {"ranks", "timeout", "args", "env", "link", "stderr", "exit", "only", "variants", "mistakes", "within", "needs"}
FORTRAN_KEYS = {"methods", "with"}
FLAGS = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]
FORTRAN_FLAGS = ["-cpp", "-O1", "-g"]
# flang has none of these options, and no warnings by default. Programs have procedures that the common file declares.
GFORTRAN_FLAGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-unused-dummy-argument",
                  "-Wno-compare-reals", "-fcheck=bounds,do,mem,pointer"]
# mpif.h declares no interfaces, so buffers of two types in one file are warnings.
MPIF_FLAGS = ["-w"]
FORTRAN_ENDS = (".f90", ".f")
METHODS = {"mpif.h": "METHOD_MPIF", "mpi": "METHOD_MPI", "mpi_f08": "METHOD_F08"}
IMMEDIATE_OFF = "sendi,recvi,directed,immediate-datatype"



class Variant:
    """A variant of a run: its variables, on up to `most` ranks."""

    def __init__(self, name, env, most):
        self.name, self.env, self.most = name, env, most


PLAIN = Variant("", {}, 1 << 20)

VARIANTS = [
    Variant("immediate-off", {"FASTPATH_DISABLE": IMMEDIATE_OFF}, 8),
    Variant("check", {"FASTPATH_CHECK": "1"}, 3),
    Variant("yield", {"FASTPATH_WAIT": "yield"}, 8),
    Variant("sleep", {"FASTPATH_WAIT": "sleep"}, 8),
    Variant("progress", {"FASTPATH_PROGRESS": "thread"}, 8),
    Variant("tcp", {"FASTPATH_TRANSPORTS": "tcp"}, 3),
    Variant("spin", {"FASTPATH_WAIT": "spin"}, 2),
    Variant("immediate-off-sleep", {"FASTPATH_DISABLE": IMMEDIATE_OFF, "FASTPATH_WAIT": "sleep"}, 8),
    *(Variant(f"without-{name}", {"FASTPATH_DISABLE": name}, 3)
      for name in [*IMMEDIATE_OFF.split(","), "cma", "direct", "pipeline", "prefetch,demote,pause", "drain", "adapt",
                   "oversubscription"]),
]

# Variants that run with every change, by the family of a program: its name up to the first `_`. A variant is chosen for
# a family if it replaces the code that the family tests, and no other test of a change runs that code as often.
# Variants that change how ranks wait, how long messages travel or which single optimization is off concern all families
# equally. They, and all variants at other numbers of ranks, are left to the slices (slices.py) and to `--all`. See
# decision 0074.
CHOSEN = {
    "coll": ["immediate-off", "check"],
    "comm": ["check"],
    "file": ["check"],
    "partitioned": ["check"],
    "pt2pt": ["immediate-off", "check"],
    "rma": ["check", "without-direct"],
    "type": ["check"],
}


def read(path):
    """Contents of the file; empty if it does not exist."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _locked(path):
    """Holds a lock on a file, so that concurrent tests do not build it twice."""
    with open(path, "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(binary, command, sources):
    """Runs the compiler, the first word of `command`, if a source is newer than `binary`. Returns the compiler's
    output if it fails."""
    with _locked(binary + ".lock"):
        return _build(binary, command, sources)


def _build(binary, command, sources):
    mpicc = command[0]
    prefix = os.path.dirname(os.path.dirname(mpicc))
    # The headers, the modules and the libraries may have changed with the installation.
    files = ["include/mpi.h", "lib/libmpi_abi.so"]
    if os.path.basename(mpicc) == "mpifort":
        files += ["include/mpif.h", "lib/libmpifort_abi.so", "share/fastpath/fortran/mpi_f08.f90"]
    installed = [mpicc, *(os.path.join(prefix, file) for file in files)]
    newest = max(os.stat(path).st_mtime for path in [*sources, *filter(os.path.exists, installed)])
    # A program uses the library of the installation whose compiler built it.
    by = binary + ".by"
    if os.path.exists(binary) and os.stat(binary).st_mtime > newest and read(by) == " ".join(command):
        return None
    # Built under another name first: a running program, also in another checkout's machine, keeps its mapping.
    new = binary + ".new"
    made = subprocess.run([new if word == binary else word for word in command], capture_output=True, text=True)
    if made.returncode != 0:
        return made.stderr or f"{mpicc} fails"
    os.replace(new, binary)
    with open(by, "w", encoding="utf-8") as file:
        file.write(" ".join(command))
    return None


def _mpifort(mpicc):
    return os.path.join(os.path.dirname(mpicc), "mpifort")


@functools.cache
def fortran_compiler(mpicc):
    """Name of the compiler that the mpifort beside mpicc calls, and the flags for it."""
    mpifort = _mpifort(mpicc)
    named = subprocess.run([mpifort, "-showme:command"], capture_output=True, text=True, check=True).stdout.strip()
    strict = GFORTRAN_FLAGS if "gfortran" in os.path.basename(named) else []
    return named, [*FORTRAN_FLAGS, *strict]


class Program:
    """A program; `method`: the one of its methods for which it is compiled, if it names any."""

    def __init__(self, path, method=None):
        self.path, self.method = path, method
        self.name = "-".join([os.path.splitext(os.path.basename(path))[0], *([method] if method else [])])
        self.is_fortran = path.endswith(FORTRAN_ENDS)
        self.methods, self.c_source = [], None
        self.ranks, self.timeout, self.args, self.env, self.link = [1, 2, 3, 4], 60, [[]], {}, []
        self.quiet, self.exit, self.only, self.has_variants = True, 0, "", True
        self.has_mistakes = self.within = False
        self.needed, self.chosen = None, []
        with open(path, encoding="utf-8") as file:
            head = file.read(4096)
        for line in re.findall(r"^[ /*!c]*test: (.*?)(?:\*/)?$", head, re.MULTILINE):
            for word in line.split():
                self._read(word)

    def _read(self, word):
        key, _, value = word.partition("=")
        if key not in (KEYS | FORTRAN_KEYS if self.is_fortran else KEYS) or not value:
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
        elif key == "methods":
            self.methods = value.split(",")
            if unknown := set(self.methods) - set(METHODS):
                raise ValueError(f"{self.path}: unknown methods {sorted(unknown)}")
        elif key == "with":
            self.c_source = os.path.join(os.path.dirname(self.path), value)
        elif key == "stderr":
            self.quiet = value != "any"
        elif key == "exit":
            self.exit = int(value)
        elif key == "only":
            self.only = value
        elif key == "variants":
            self.has_variants = value != "none"
            self.chosen = value.split(",") if self.has_variants else []
            unknown = set(self.chosen) - {variant.name for variant in VARIANTS}
            if unknown:
                raise ValueError(f"{self.path}: unknown variants {sorted(unknown)}")
        elif key == "needs":
            self.needed = value if value == "machine" else int(value)
        elif key == "within":
            self.within = value == "node"
        elif key == "mistakes":
            self.has_mistakes = value == "yes"

    def compile(self, mpicc, folder):
        """Compiles it if its source is newer than its binary; returns the compiler's output."""
        self.binary = os.path.join(folder, self.name + (".so" if "-shared" in self.link else ""))
        with open(self.path, encoding="utf-8") as file:
            included = re.findall(r'#include "([^"]+)"', file.read())
        sources = [self.path] + [os.path.join(os.path.dirname(self.path), name) for name in included]
        if self.is_fortran:
            return self._compile_fortran(mpicc, sources)
        return build(self.binary, [mpicc, *FLAGS, "-o", self.binary, self.path, *self.link], sources)

    def _compile_fortran(self, mpicc, sources):
        """Compiles it by the mpifort beside mpicc, and links its C source."""
        compiler, flags = fortran_compiler(mpicc)
        if self.method == "mpif.h" or self.path.endswith(".f"):
            flags = [flag for flag in flags if not flag.startswith("-W")] + MPIF_FLAGS
        if self.method:
            flags = [*flags, f"-D{METHODS[self.method]}"]
        # Programs may have modules, whose files have the same names for each method.
        modules = self.binary + ".modules"
        os.makedirs(modules, exist_ok=True)
        flags = [*flags, "-J", modules]
        objects = []
        if self.c_source:
            objects = [self.binary + ".o"]
            complaint = build(objects[0], [mpicc, *FLAGS, "-fPIC", "-c", "-o", objects[0], self.c_source], [self.c_source])
            if complaint:
                return complaint
        words = [_mpifort(mpicc), f"-fc={compiler}", *flags, "-o", self.binary, self.path, *objects, *self.link]
        return build(self.binary, words, [*sources, *objects])

    def needs(self, ranks):
        """Resources of a run on that many ranks; see harness.schedule.Test."""
        if self.needed == "machine":
            return {"processors": ranks, "alone": True}
        return {"processors": ranks if self.needed is None else self.needed}

    def _variants(self):
        """Variants that differ from the plain run."""
        return [variant for variant in VARIANTS if self.has_variants
                and not (variant.name == "check" and self.has_mistakes) and not (variant.name == "tcp" and self.within)
                and any(self.env.get(name) != value for name, value in variant.env.items())]

    def runs(self, everything, slice_):
        """Runs of the program: name, number of ranks, arguments, variables of the variant. Without `everything`: the
        plain runs and the chosen variants on the smallest number of several ranks, and the slices of the rest."""
        chosen = [*CHOSEN.get(self.name.split("_")[0], ()), *self.chosen]
        several = min((n for n in self.ranks if n > 1), default=None)
        for args in self.args:
            for variant in [PLAIN, *self._variants()]:
                for n in self.ranks:
                    name = " ".join(word for word in [self.name, *args, f"n={n}", variant.name] if word)
                    if variant is PLAIN:
                        is_due = n == several or several is None or slice_.has_ranks(name)
                    else:
                        is_due = (n == several and variant.name in chosen) or slice_.has_variant(name)
                    if n <= variant.most and (everything or is_due):
                        yield name, n, args, variant.env

    def runs_over(self, transports):
        """Like `runs`, over network transports; empty if its subject is shared memory of a node."""
        if self.within:
            return []
        env = {"FASTPATH_TRANSPORTS": transports}
        return [(" ".join([self.name, *args, f"n={n}", transports]), n, args, env) for args in self.args for n in self.ranks]


@functools.cache
def _sources(folder):
    """The source file of each program below a folder, by the program's name, in the order of names. A folder with
    Fortran programs has no C programs: C sources there are parts of them."""
    found = {}
    for place, folders, files in os.walk(folder):
        # Programs of tests/fortran/compile, which runs them itself.
        folders[:] = [name for name in folders if name != "programs"]
        ends = FORTRAN_ENDS if any(name.endswith(FORTRAN_ENDS) for name in files) else (".c",)
        for file in (file for file in files if file.endswith(ends)):
            name, path = os.path.splitext(file)[0], os.path.join(place, file)
            if name in found:
                raise ValueError(f"{found[name]} and {path} are programs of the same name")
            found[name] = path
    return dict(sorted(found.items()))


def find(folder=FOLDER):
    """All programs below a folder, in the order of their names: one for each method of a Fortran source."""
    programs = []
    for path in _sources(folder).values():
        one = Program(path)
        programs += [Program(path, method) for method in one.methods] or [one]
    return programs


def source(name):
    """The source file of a program of tests/c or tests/fortran."""
    found = _sources(FOLDER).get(name) or _sources(FORTRAN).get(name)
    if found is None:
        raise ValueError(f"tests/c and tests/fortran have no program {name}")
    return found
