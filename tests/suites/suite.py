"""Common part of the suites: folders, commands, and counts of results.

Sources and builds are in the cache (tests/harness/cache.py), and are read-only once complete: concurrent runs may use
them. A run writes only to its own folder in target/suites.
"""

import argparse
import atexit
import inspect
import os
import shutil
import subprocess
import sys
import tempfile

from over import ROOT, places

from harness import cache, packages
from harness.counts import Counts

SCRATCH = os.path.join(ROOT, "target", "suites")
# Links to mpicc, whose behavior depends on their name.
WRAPPERS = ["mpicxx", "mpic++", "mpiCC", "mpicc_abi", "mpicxx_abi", "mpic++_abi"]
# Sources from which mpifort compiles the modules.
MODULES = os.path.join("share", "fastpath", "fortran")


class Suite:
    """One run of a suite against an installation."""

    def __init__(self, name, text, goes_elsewhere=False, fortran=None, **more):
        """`goes_elsewhere`: it runs in each place of `everywhere`. `fortran`: the default of --fc, empty if it builds with
        mpifort only on request. `more`: further options, as arguments for argparse."""
        parser = argparse.ArgumentParser(description=text)
        parser.add_argument("--quick", action="store_true", help="fewer ranks or smaller problems, for every change")
        parser.add_argument("--prefix", help="installation to test; by default `make install` creates one")
        parser.add_argument("--ranks", help="only these numbers of ranks (`2,4`)")
        parser.add_argument("--clones", help="folder with git clones of sources without packages, by name of the suite")
        if goes_elsewhere:
            parser.add_argument("--over", help="tcp: on two virtual hosts; rc, ud: in the virtual machine; or several")
            parser.add_argument("--hosts", type=int, choices=[1, 2], default=1, help="virtual hosts in the machine")
        if fortran is not None:
            note = f"{fortran} by default" if fortran else "without it the Fortran part is neither built nor run"
            parser.add_argument("--fc", default=fortran, help=f"Fortran compiler behind mpifort; {note}")
        for flag, settings in more.items():
            parser.add_argument(f"--{flag}", **settings)
        options = self.options = parser.parse_args()
        self.name, self.quick, self.only = name, options.quick, options.ranks
        os.makedirs(SCRATCH, exist_ok=True)
        self.work = tempfile.mkdtemp(prefix=f"{name}-", dir=SCRATCH)
        atexit.register(lambda: os.path.isdir(self.work) and not os.listdir(self.work) and os.rmdir(self.work))
        self.prefix = os.path.abspath(options.prefix or os.path.join(SCRATCH, "prefix"))
        # Paths of compiler wrappers, header and library, and further variables of all commands.
        self.compiler = options.fc if fortran is not None else ""
        self.tools, self.variables = self.prefix, {"FASTPATH_FC": self.compiler} if self.compiler else {}
        self.needed = []
        if not options.prefix:
            self.must(["make", "-C", ROOT, "install", f"PREFIX={self.prefix}"], "the library cannot be built")
        if self.compiler:
            self._need_fortran()
        self.counts = Counts()
        self.place, self.is_elsewhere_missing = None, False

    def _need_fortran(self):
        """Ends the suite if mpifort or its compiler is missing; installs gfortran."""
        if not os.path.exists(os.path.join(self.prefix, "bin", "mpifort")):
            sys.exit(f"FAILED: {self.prefix} has no mpifort")
        if self.compiler == "gfortran":
            self.need("gfortran", shutil.which("gfortran"))
        elif not shutil.which(self.compiler):
            sys.exit(f"FAILED: there is no compiler {self.compiler}")

    def environment(self, **more):
        """Environment with the installation's commands and library first, and one thread for each rank's linear
        algebra."""
        paths = {"PATH": "bin", "LD_LIBRARY_PATH": "lib"}
        paths = {name: ":".join(filter(None, [os.path.join(self.tools, folder), os.environ.get(name)]))
                 for name, folder in paths.items()}
        return {**os.environ, **paths, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **self.variables, **more}

    def call(self, command, cwd=None, **more):
        """Runs a command; returns its exit code and output."""
        done = subprocess.run(
            command, cwd=cwd or self.work, env=self.environment(**more), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        return done.returncode, done.stdout

    def must(self, command, complaint, cwd=None, **more):
        """Runs a command that prepares the suite; a failure ends the suite."""
        code, printed = self.call(command, cwd, **more)
        if code != 0:
            sys.exit(f"{printed[-4000:]}\nFAILED: {complaint}: {' '.join(command)} exited with code {code}")
        return printed

    def everywhere(self):
        """Yields each place that --over names; programs launched meanwhile run there."""
        for place in places(self):
            with place:
                self.place = place
                yield place

    def launch(self, ranks, command, seconds, judge, cwd=None, **more):
        """Runs a program under our launcher, which ends it after the time limit and reports the state of each rank.
        `judge` gets the exit code and the output; in the virtual machine that is later."""
        words = [self.place.launcher, "--timeout", str(seconds), "-n", str(ranks), *command]
        self.place.run(words, seconds, judge, cwd, **more)

    def run_ranks(self, ranks, command, seconds, cwd=None, **more):
        """Runs a program on this host at once; returns exit code and output."""
        launcher = os.path.join(self.prefix, "bin", "mpiexec")
        return self.call([launcher, "--timeout", str(seconds), "-n", str(ranks), *command], cwd, **more)

    def need(self, package, is_there):
        """Installs a Debian package if it is missing. Later builds depend on its version."""
        self.install(package, is_there)
        code, printed = self.call(["dpkg-query", "-W", package])
        self.needed += printed.split() if code == 0 else []  # not from Debian

    def install(self, package, is_there):
        """Installs a Debian package if it is missing."""
        if not is_there:
            self.must(["apt-get", "update", "-q"], "Debian's lists of packages are not available")
            self.must(["apt-get", "install", "-y", "--no-install-recommends", package], f"{package} is needed",
                      DEBIAN_FRONTEND="noninteractive")

    def build(self, make, *words, by_prefix=False):
        """Returns the folder in the cache that `make(folder)` fills with a build by our compiler wrappers.

        A build depends on `words`, the source text of `make`, the packages named by `need`, the compiler wrapper, the
        compilers behind it, the header, and the names that the library exports. It does not depend on the prefix: it is
        built with copies of wrapper and header, and its programs find the library by LD_LIBRARY_PATH. Their run path
        leads to those copies, from which the library is removed, so that no program runs with another library than the
        tested one. `by_prefix` is for software that records the prefix, or compiles while it is tested.
        """
        def make_with_tools(folder):
            tools = os.path.join(folder, "tools")
            if by_prefix:
                make(folder)
                return
            self._copy_tools(tools)
            self.tools = tools
            try:
                make(folder)
            finally:
                self.tools = self.prefix
            os.unlink(os.path.join(tools, "lib"))

        depends = [*words, inspect.getsource(make), *self.needed, *self._describe_tools(), *packages.system()]
        return cache.entry(f"build-{self.name}", [*depends, *([self.prefix] if by_prefix else [])], make_with_tools)

    def _copy_tools(self, folder):
        """An installation for compiling: wrappers, header, and a link to the library's folder."""
        os.makedirs(os.path.join(folder, "bin"))
        fortran = ["mpifort", "mpif90", "mpif77"] if self.compiler else []
        for name in ("mpicc", *WRAPPERS, *fortran):
            shutil.copy2(os.path.join(self.prefix, "bin", name), os.path.join(folder, "bin"), follow_symlinks=False)
        shutil.copytree(os.path.join(self.prefix, "include"), os.path.join(folder, "include"))
        if self.compiler:
            shutil.copytree(os.path.join(self.prefix, MODULES), os.path.join(folder, MODULES))
        os.symlink(os.path.join(self.prefix, "lib"), os.path.join(folder, "lib"))

    def _describe_tools(self):
        described = []
        files, wrappers, libraries = ["bin/mpicc", "include/mpi.h"], ["mpicc", "mpicxx"], ["libmpi_abi.so"]
        if self.compiler:
            files += ["bin/mpifort", "include/mpif.h"]
            files += sorted(os.path.join(MODULES, name) for name in os.listdir(os.path.join(self.prefix, MODULES)))
            wrappers.append("mpifort")
            libraries.append("libmpifort_abi.so")
        for path in files:
            with open(os.path.join(self.prefix, path), encoding="utf-8") as file:
                described.append(file.read())
        for wrapper in wrappers:
            described.append(self.must([os.path.join(self.prefix, "bin", wrapper), "--version"], "there is no compiler"))
        for library in libraries:
            described.append(self.must(["nm", "-D", "--defined-only", "--format=just-symbols",
                                        os.path.join(self.prefix, "lib", library)], "the library cannot be read"))
        return described

    def choose_ranks(self, usual):
        return [int(n) for n in self.only.split(",")] if self.only else usual

    def count(self, what, good, printed="", tests=1):
        """Counts a result; a failure prints the end of the output."""
        where = f", {self.place.name}" if self.place and self.place.name else ""
        print(f"{'ok' if good else 'FAILED'}: {what}{where}", flush=True)
        self.counts.add("passed" if good else "failed", tests)
        if not good:
            print(printed[-3000:], flush=True)

    def close(self):
        print(self.counts)
        if self.counts["failed"]:
            print(f"files of this run: {self.work}")
        else:
            shutil.rmtree(self.work, ignore_errors=True)
        has_nothing_to_do = self.is_elsewhere_missing and not self.counts["failed"]
        sys.exit(0 if has_nothing_to_do else self.counts.exit_code())

    def fetch_git(self, name, address, commit):
        """Returns the folder of a commit of a git repository.

        If the repository cannot be reached and --clones has none, the suite reports that and ends: nothing was tested.
        """
        def clone(folder):
            origin = os.path.join(self.options.clones, name) if self.options.clones else address
            packages.run(["env", "GIT_TERMINAL_PROMPT=0", "git", "clone", "--quiet", "--bare", origin, folder])

        self.install("git", shutil.which("git"))
        try:
            return packages.git_source(name, clone, commit)
        except OSError as error:
            print(f"SKIP {name}: its source is not available from {address}; --clones DIR names a folder with a "
                  f"clone of it: {error}")
            sys.exit(0)

    def fetch_debian(self, package, version, tree):
        """Returns the folder of the upstream part of a Debian source package."""
        try:
            return os.path.join(packages.debian_source(package, version), tree)
        except OSError as error:
            sys.exit(f"FAILED: the source of {package} is not available: {error}")


def copy_source(source, folder):
    """Copies a source for builds that write to it; returns the folder."""
    place = os.path.join(folder, "source")
    shutil.copytree(source, place, symlinks=True)
    return place
