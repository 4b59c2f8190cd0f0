"""Counts of tests: how a runner prints them at its end, and how tests/parts reads that line."""

import re

NAMES = ("passed", "failed", "skipped")


class Counts(dict):
    """Number of tests by outcome, each of NAMES."""

    def __init__(self, numbers=()):
        super().__init__({**dict.fromkeys(NAMES, 0), **dict(numbers)})

    def __str__(self):
        return ", ".join(f"{self[name]} {name}" for name in NAMES)

    def add(self, outcome, tests=1):
        self[outcome] += tests

    def exit_code(self):
        """Exit code of a runner: a run in which nothing passed has failed."""
        return 1 if self["failed"] or not self["passed"] else 0


def parse(line):
    """The counts in a line that begins as `str` prints them; None where it has none."""
    if not re.match(r"\d+ passed, \d+ failed", line):
        return None
    return Counts({name: int(number) for number, name in re.findall(r"(\d+) (\w+)", line) if name in NAMES})
