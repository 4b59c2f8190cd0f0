"""Slices of the tests that do not run with every change: which of them a commit runs. All slices together have all of them."""

import subprocess
import zlib

# How many slices there are: of the variants of programs, and of cases that are marked `sliced`.
VARIANTS, CASES = 100, 8


def commit(folder):
    """The short hash of the commit that is checked out; "none" where there is no repository."""
    try:
        made = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=folder, capture_output=True, text=True)
    except OSError:
        return "none"
    return made.stdout.strip() or "none"


class Slice:
    """The slice of one commit. The same commit always has the same one."""

    def __init__(self, commit):
        self.commit, self._number = commit, zlib.crc32(commit.encode())

    def _has(self, name, slices):
        return zlib.crc32(name.encode()) % slices == self._number % slices

    def has_variant(self, name):
        """Whether a run of a program in a variant belongs to the slice, by its name."""
        return self._has(name, VARIANTS)

    def has_case(self, name):
        """Whether a case of tests/jobs belongs to the slice, by its name."""
        return self._has(name, CASES)
