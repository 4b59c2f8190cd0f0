"""The latency matrix is flat: a message between any two ranks takes as many instructions and cache lines as one between
any other two, whatever their numbers. Counted by callgrind, because times depend on other programs of the machine."""

import glob
import os
import re

RANKS, CALLS = 6, 64
DESCRIPTION = re.compile(r"^desc: Trigger: Client Request: (\w+) (\d+) (\d+)$", re.MULTILINE)
EVENTS = re.compile(r"^events: (.*)$", re.MULTILINE)
TOTALS = re.compile(r"^(?:totals|summary): (.*)$", re.MULTILINE)


def _read_counts(folder):
    """Counts of each dump by event: (call, from, to) with its events."""
    counts = {}
    for path in glob.glob(os.path.join(folder, "out.*")):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if name := DESCRIPTION.search(text):
            values = map(int, TOTALS.search(text)[1].split())
            counts[name[1], int(name[2]), int(name[3])] = dict(zip(EVENTS.search(text)[1].split(), values))
    return counts


def case_latency_matrix_is_flat(session):
    """Between pairs of ranks, the instructions of 64 calls may differ by 1 %, and the lines that they miss by 8."""
    folder = session.folder
    words = ["valgrind", "--quiet", "--tool=callgrind", "--collect-atstart=no", "--cache-sim=yes",
             f"--callgrind-out-file={folder}/out.%p", session.binary("message_instructions"), folder]
    outcome = session.mpirun(RANKS, words, timeout=240).finish()
    if problem := outcome.problem(quiet=False):
        return problem, outcome.text()
    counts = _read_counts(folder)
    for call in ("send", "receive"):
        pairs = {(sender, to): events for (name, sender, to), events in counts.items() if name == call}
        if len(pairs) != RANKS * (RANKS - 1):
            return f"{call}: {len(pairs)} pairs were counted", outcome.text()
        instructions = {pair: events["Ir"] for pair, events in pairs.items()}
        lines = {pair: events["D1mr"] + events["D1mw"] for pair, events in pairs.items()}
        if max(instructions.values()) > 1.01 * min(instructions.values()):
            return f"{call}: instructions of {CALLS} calls depend on the ranks", str(instructions)
        if max(lines.values()) > CALLS + CALLS // 8 or max(lines.values()) - min(lines.values()) > CALLS // 8:
            return f"{call}: cache lines of {CALLS} calls depend on the ranks", str(lines)
    return None


case_latency_matrix_is_flat.needs = {"processors": RANKS}
