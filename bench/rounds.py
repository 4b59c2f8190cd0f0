"""Helpers of scripts that measure in rounds: stored results, statistics of ratios, Markdown tables."""

import hashlib
import json
import math
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Quantiles of Student's t for 95 %, by degrees of freedom from 1.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
           2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042]


class Kept:
    """Results of one build in a file of a folder, which a further call of the script continues."""

    def __init__(self, script, options, name, empty):
        os.makedirs(options.work, exist_ok=True)
        self.path = os.path.join(options.work, name)
        digest = hashlib.sha256()
        for part in ["bin/fastpath", "lib/libmpi_abi.so.1"]:
            with open(os.path.join(options.prefix, part), "rb") as file:
                digest.update(file.read())
        self.values = {"build": digest.hexdigest(), **empty}
        if os.path.exists(self.path) and not options.anew:
            with open(self.path, encoding="utf-8") as file:
                found = json.load(file)
            if found["build"] == self.values["build"]:
                self.values.update(found)
            else:
                print(f"{script}: the stored results are of another build: starting anew", file=sys.stderr)

    def __getitem__(self, name):
        return self.values[name]

    def save(self):
        # Replace the file completely or not at all, because the script may be interrupted here.
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            json.dump(self.values, file)
        os.replace(self.path + ".new", self.path)


def run_in_machine(script, options, words, *extra):
    """Runs one command in the virtual machine of the tests; returns the finished process."""
    vm = os.path.join(ROOT, "scripts", "vm")
    done = subprocess.run([vm, "run", "--prefix", options.prefix, *extra, "--", words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{script}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done


def interval(ratios):
    """Geometric mean of the ratios, and its 95 % interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return math.exp(mean), 0.0, math.inf
    t = STUDENT[min(len(logs) - 1, len(STUDENT)) - 1]
    half = t * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def format_ratio(ratios):
    """A ratio with its interval: `~` if the interval contains 1, bold if it is above."""
    mean, low, high = interval(ratios)
    shown = f"{mean:.3f} [{low:.3f}, {high:.3f}]"
    return f"~{shown}" if low <= 1 <= high else f"**{shown}**" if low > 1 else shown


def format_table(heads, rows):
    """A table of Markdown."""
    lines = ["| " + " | ".join(map(str, line)) + " |\n" for line in [heads, *rows]]
    return lines[0] + "|" + "---|" * len(heads) + "\n" + "".join(lines[1:])


def format_count(value):
    """Instructions, with a decimal if there is one."""
    return f"{value:.1f}".removesuffix(".0")


def name_size(number):
    """A size in the notation of the tables: `4 Ki`."""
    return f"{number >> 10} Ki" if number >= 1024 and number % 1024 == 0 else str(number)
