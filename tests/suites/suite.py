"""What the suites share: where things lie, how commands are run, and how results are counted."""

import argparse
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile

from over import ROOT, places

SCRATCH = os.path.join(ROOT, "target", "suites")


class Suite:
    """One run of a suite against an installation."""

    def __init__(self, name, text, goes_elsewhere=False, **more):
        """`goes_elsewhere`: it runs in each place of `everywhere`. `more`: further options, as argparse describes them."""
        parser = argparse.ArgumentParser(description=text)
        parser.add_argument("--quick", action="store_true", help="fewer ranks or smaller problems, for every change")
        parser.add_argument("--prefix", help="the installation to test; otherwise `make install` makes one")
        parser.add_argument("--ranks", help="only these numbers of ranks (`2,4`)")
        parser.add_argument("--clones", help="a folder with git clones of sources that are no packages, by the suite's name")
        if goes_elsewhere:
            parser.add_argument("--over", help="tcp: on two virtual hosts; rc, ud: in the virtual machine; or several")
            parser.add_argument("--hosts", type=int, choices=[1, 2], default=1, help="virtual hosts in the machine")
        for flag, settings in more.items():
            parser.add_argument(f"--{flag}", **settings)
        options = self.options = parser.parse_args()
        self.quick, self.only = options.quick, options.ranks
        self.work = os.path.join(SCRATCH, name)
        os.makedirs(self.work, exist_ok=True)
        self.prefix = os.path.abspath(options.prefix or os.path.join(SCRATCH, "prefix"))
        if not options.prefix:
            self.must(["make", "-C", ROOT, "install", f"PREFIX={self.prefix}"], "the library cannot be built")
        self.passed = self.failed = self.skipped = 0
        self.place, self.is_elsewhere_missing = None, False

    def environment(self, **more):
        """The environment with the installation's commands first, and one thread for each rank's linear algebra."""
        path = os.path.join(self.prefix, "bin") + os.pathsep + os.environ["PATH"]
        return {**os.environ, "PATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **more}

    def call(self, command, cwd=None, **more):
        """Runs a command; returns its exit code and what it printed."""
        done = subprocess.run(
            command, cwd=cwd or self.work, env=self.environment(**more), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        return done.returncode, done.stdout

    def must(self, command, complaint, cwd=None, **more):
        """Runs a command that prepares the suite; the suite ends where it fails."""
        code, printed = self.call(command, cwd, **more)
        if code != 0:
            sys.exit(f"{printed[-4000:]}\nFAILED: {complaint}: {' '.join(command)} left with {code}")
        return printed

    def everywhere(self):
        """Each place that --over names, one after the other; what is launched meanwhile runs there."""
        for place in places(self):
            with place:
                self.place = place
                yield place

    def launch(self, ranks, command, seconds, judge, cwd=None, **more):
        """Runs a program under our launcher, which ends it and says what each rank did if it takes too long. `judge` gets
        the exit code and what was printed; in the virtual machine that is later."""
        words = [self.place.launcher, "--timeout", str(seconds), "-n", str(ranks), *command]
        self.place.run(words, seconds, judge, cwd, **more)

    def run_ranks(self, ranks, command, seconds, cwd=None, **more):
        """The same on this host, at once: returns them."""
        launcher = os.path.join(self.prefix, "bin", "mpiexec")
        return self.call([launcher, "--timeout", str(seconds), "-n", str(ranks), *command], cwd, **more)

    def need(self, package, is_there):
        """Installs a package of Debian that is missing."""
        if not is_there:
            self.must(["apt-get", "install", "-y", "--no-install-recommends", package], f"{package} is needed",
                      DEBIAN_FRONTEND="noninteractive")

    def mark_installation(self):
        """A word for what a program is built with: prefix, compiler wrapper and header."""
        mark = hashlib.sha256(self.prefix.encode())
        for path in (os.path.join("bin", "mpicc"), os.path.join("include", "mpi.h")):
            with open(os.path.join(self.prefix, path), "rb") as file:
                mark.update(file.read())
        return mark.hexdigest()

    def open_build(self, name):
        """A folder to build in: the one of the last time, or an empty one if that was for another installation."""
        place, mark = os.path.join(self.work, name), self.mark_installation()
        stamp = os.path.join(place, ".built-with")
        if not os.path.exists(stamp) or open(stamp).read() != mark:
            shutil.rmtree(place, ignore_errors=True)
            os.makedirs(place)
            with open(stamp, "w") as file:
                file.write(mark)
        return place

    def choose_ranks(self, usual):
        return [int(n) for n in self.only.split(",")] if self.only else usual

    def count(self, what, good, printed="", tests=1):
        """Counts a result; a failure shows the end of what was printed."""
        where = f", {self.place.name}" if self.place and self.place.name else ""
        print(f"{'ok' if good else 'FAILED'}: {what}{where}", flush=True)
        if good:
            self.passed += tests
        else:
            self.failed += tests
            print(printed[-3000:], flush=True)

    def close(self):
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        sys.exit(1 if self.failed or not (self.passed or self.is_elsewhere_missing) else 0)

    def fetch_git(self, name, address, commit):
        """Unpacks a commit of a git repository afresh; returns its directory.

        It is fetched once. Where the repository cannot be reached and --clones has none, the suite says so and ends:
        nothing has been tested.
        """
        clone = os.path.join(self.options.clones or self.work, name if self.options.clones else "clone")
        if not self.options.clones and not os.path.exists(clone):
            code, printed = self.call(["git", "clone", "--quiet", "--bare", address, clone],
                                      GIT_TERMINAL_PROMPT="0")
            if code != 0:
                print(f"SKIP {name}: its source cannot be had from {address}; --clones DIR names a folder with a "
                      f"clone of it: {printed.strip()}")
                sys.exit(0)
        place = os.path.join(self.work, name)
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(place)
        packed = os.path.join(self.work, name + ".tar")
        self.must(["git", "-C", clone, "archive", "-o", packed, commit], f"there is no commit {commit}")
        with tarfile.open(packed) as archive:
            archive.extractall(place)
        os.remove(packed)
        return place

    def fetch_debian(self, package, version, tree):
        """Unpacks the upstream part of a Debian source package afresh; returns its directory.

        The indexes lie in a scratch directory of ours: a system without `deb-src` needs no change.
        apt verifies the archive's signature and the sums in it.
        """
        apt = os.path.join(SCRATCH, "apt")
        for name in ("sources", "lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(apt, name), exist_ok=True)
        with open(os.path.join(apt, "sources", "debian.sources"), "w") as file:
            file.write("Types: deb-src\nURIs: http://deb.debian.org/debian\nSuites: bookworm\nComponents: main\n"
                       "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n")
        options = ["-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={apt}/sources",
                   "-o", f"Dir::State::lists={apt}/lists", "-o", f"Dir::Cache={apt}/cache",
                   "-o", "APT::Sandbox::User=root"]
        pattern = os.path.join(self.work, f"{package}_{version}.orig.tar.*")
        if not glob.glob(pattern):
            self.must(["apt-get", *options, "update"], "Debian's list of sources cannot be had")
            self.must(["apt-get", *options, "source", "--download-only", "--tar-only", package],
                      f"the source of {package} cannot be had")
        place = os.path.join(self.work, tree)
        shutil.rmtree(place, ignore_errors=True)
        with tarfile.open(glob.glob(pattern)[0]) as packed:
            packed.extractall(self.work)
        return place
