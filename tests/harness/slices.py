"""Slices of the tests that do not run with every change: a commit runs one slice. Together the slices cover all of
these tests."""

import subprocess
import zlib

# Number of slices: of program variants, of plain runs at further numbers of ranks, and of cases marked `sliced` in
# tests/jobs and in tests/vm/cases.
VARIANTS, RANKS, CASES, MACHINE_CASES = 100, 3, 8, 6


def sliced(case):
    """Marks a case of tests/jobs that runs only with the changes of its slice, and with --all."""
    case.sliced = True
    return case


def commit(folder):
    """Short hash of the checked-out commit; "none" without a repository."""
    try:
        made = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=folder, capture_output=True, text=True)
    except OSError:
        return "none"
    return made.stdout.strip() or "none"


class Slice:
    """Slice of one commit, a function of its hash."""

    def __init__(self, commit):
        self.commit, self._number = commit, zlib.crc32(commit.encode())

    def _has(self, name, slices):
        return zlib.crc32(name.encode()) % slices == self._number % slices

    def has_variant(self, name):
        """Returns whether a run of a program in a variant belongs to the slice, by its name."""
        return self._has(name, VARIANTS)

    def has_ranks(self, name):
        """Returns whether a plain run at a further number of ranks belongs to the slice, by its name."""
        return self._has(name, RANKS)

    def has_case(self, name):
        """Returns whether a case of tests/jobs belongs to the slice, by its name."""
        return self._has(name, CASES)

    def has_machine_case(self, name):
        """Returns whether a case of tests/vm/cases belongs to the slice, by its name."""
        return self._has(name, MACHINE_CASES)

    def choose(self, names):
        """Returns the one of several names that belongs to the slice."""
        return names[self._number % len(names)]
