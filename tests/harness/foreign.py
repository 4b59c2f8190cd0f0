"""Lines that engines of other projects print to standard error in successful jobs. The list is exact: any other line
counts as output of this project."""

import re

# One line each.
LINES = [
    # PRRTE, when it starts a daemon with `rsh`.
    r"\[h\d:\d+\] plm:ssh: Warning: setpgid.*",
    # srun, if the cluster does not bind processes.
    r"srun: cluster configuration lacks support for cpu binding",
    # Hydra, for a process that ended before it was notified of the end of its input.
    r"\[(mpiexec|proxy:[\d:]+)@[\w.-]+\] HYDU_sock_write \([\w./-]+:\d+\): write error \(Bad file descriptor\)",
]
# PRRTE, for the folder that virtual hosts share.
REMOVED_FILE = r"-{70,}\nWe attempted to remove a file.*?\n-{70,}\n *\n?"


def remove(text):
    """Returns the text without these lines."""
    text = re.sub(REMOVED_FILE, "", text, flags=re.DOTALL)
    return "".join(line for line in text.splitlines(True)
                   if not any(re.fullmatch(known, line.rstrip("\n")) for known in LINES))
