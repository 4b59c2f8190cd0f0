"""Services for a test: the installation, compiled programs, jobs, and notes."""

import os
import subprocess
import tempfile

from harness import job, program

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(HERE)


class Session:
    """State of a test run. Each test's process has a copy, so that its changes are private."""

    def __init__(self, prefix, everything):
        self.everything = everything
        self.prefix = prefix and os.path.abspath(prefix)
        # Compiled programs, shared by the tests.
        self.build = os.path.join(ROOT, "build", "tests")
        self.skipped = []

    def install(self):
        """Builds an installation if none was named: incrementally and without LTO, so that an edit costs seconds."""
        if self.prefix is None:
            self.prefix = os.path.join(ROOT, "build", "quick")
            subprocess.run(["make", "-s", "-C", ROOT, "install", "PROFILE=quick", f"PREFIX={self.prefix}"],
                           check=True, stdout=subprocess.DEVNULL)
        self.mpiexec = os.path.join(self.prefix, "bin", "mpiexec")
        self.mpicc = os.path.join(self.prefix, "bin", "mpicc")
        os.makedirs(self.build, exist_ok=True)

    @property
    def folder(self):
        """Temporary folder of the test, removed with it."""
        return tempfile.gettempdir()

    def skip(self, name, reason):
        """Notes that a test, or a part of it, cannot run on this machine."""
        self.skipped.append(f"{name}: {reason}")

    def binary(self, name):
        """Path of a compiled program of tests/c or tests/fortran."""
        made = program.Program(program.source(name))
        complaint = made.compile(self.mpicc, self.build)
        if complaint:
            raise RuntimeError(f"{name} does not compile: {complaint}")
        return made.binary

    def mpirun(self, ranks, words, timeout=60, options=(), **more):
        """Starts a job of `ranks` ranks; see harness.job.Running."""
        command = [self.mpiexec, "-n", str(ranks), "--timeout", str(timeout), *options, *words]
        return job.Running(command, timeout=timeout, **more)

    def start(self, words, timeout=60, **more):
        """Starts a program that is not a job; see harness.job.Running."""
        return job.Running(words, timeout=timeout, **more)
