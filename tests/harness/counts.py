"""Counts of tests: a runner prints them as its last line, which tests/parts parses."""

import re

NAMES = ("passed", "failed", "skipped")


class Counts(dict):
    """Number of tests for each outcome of NAMES."""

    def __init__(self, numbers=()):
        super().__init__({**dict.fromkeys(NAMES, 0), **dict(numbers)})

    def __str__(self):
        return ", ".join(f"{self[name]} {name}" for name in NAMES)

    def add(self, outcome, tests=1):
        self[outcome] += tests

    def exit_code(self):
        """Exit code of a runner: a run without a passed test has failed."""
        return 1 if self["failed"] or not self["passed"] else 0


def parse(line):
    """Parses the counts in a line that begins as `str` prints them; None if it has none."""
    if not re.match(r"\d+ passed, \d+ failed", line):
        return None
    return Counts({name: int(number) for number, name in re.findall(r"(\d+) (\w+)", line) if name in NAMES})
