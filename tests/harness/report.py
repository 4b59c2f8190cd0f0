"""Results of a test run: progress, a line for each failure, and the records for tests/parts."""

import os
import sys
import time

from harness import records
from harness.counts import Counts

# Seconds between progress lines if the output is not a terminal.
PAUSE = 10


class Report:
    """`logs`: folder with a log of each failure; `repeat`: returns the command that repeats a test, by its name."""

    def __init__(self, logs, repeat, verbose=False):
        self.logs, self.repeat, self.verbose = logs, repeat, verbose
        self.counts = Counts()
        self.processor_seconds = 0
        self.own_shm = True
        self.failures = []
        self.started = self.shown = time.monotonic()
        os.makedirs(logs, exist_ok=True)

    def show(self, names):
        """Prints progress: one changing line on a terminal, otherwise a line at intervals."""
        now = time.monotonic()
        done = f"{self.counts['passed']} passed, {self.counts['failed']} failed, {now - self.started:.0f} s: {', '.join(names)}"
        if sys.stdout.isatty():
            print(f"\r\033[K{done[:100]}", end="", flush=True)
        elif now - self.shown >= PAUSE:
            self.shown = now
            print(f"  {done}", flush=True)

    def _print(self, line):
        if sys.stdout.isatty():
            print("\r\033[K", end="")
        print(line, flush=True)

    def note(self, ended):
        """Counts a test; see harness.schedule.Ended. Its outcome has `problem`, `log`, `skipped`, `own_shm`."""
        name, outcome = ended.test.name, ended.outcome or {"problem": ended.trouble, "log": "", "skipped": []}
        self.own_shm &= outcome.get("own_shm", True)
        self.processor_seconds += ended.processor_seconds
        if outcome["problem"] is not None:
            result = "failed"
            self._note_failure(name, outcome["problem"], f"{outcome['log']}\n{ended.said}")
        else:
            result = "skipped" if outcome["skipped"] else "passed"
        self.counts.add(result)
        for reason in outcome["skipped"]:
            self._print(f"SKIP {reason}")
        if self.verbose:
            self._print(f"{result:7} {ended.seconds:6.1f} s, processor time {ended.processor_seconds:6.1f} s: {name}")
        if ended.said and result != "failed":
            self._print(ended.said.rstrip("\n"))
        records.record(test=name, seconds=ended.seconds, processor_seconds=ended.processor_seconds, outcome=result,
                       repeat=self.repeat(name))

    def _note_failure(self, name, problem, log):
        path = os.path.join(self.logs, name.replace(" ", "_").replace("/", "_") + ".log")
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(f"{problem}\n{log}")
        line = f"FAIL {name}: {problem} [{os.path.relpath(path)}]"
        self.failures.append((line, name))
        self._print(line)

    def close(self):
        """Prints all failures again, each with the command that repeats it, and the counts. Returns the exit code."""
        if sys.stdout.isatty():
            print("\r\033[K", end="")
        if self.failures:
            print("Failures:")
        for line, name in self.failures:
            print(f"  {line}\n    repeat: {self.repeat(name)}")
        if not self.own_shm:
            print("note: the tests had no private /dev/shm, so files left there were not checked")
        print(f"in {time.monotonic() - self.started:.0f} s, processor time {self.processor_seconds:.0f} s")
        print(self.counts, flush=True)
        return self.counts.exit_code()
