"""Lines that launchers of others print to standard error by themselves, in jobs that go well. The list is exact: whatever
else they print counts as if it were ours."""

import re

# One line each.
LINES = [
    # PRRTE, when it starts a daemon by `rsh`.
    r"\[h\d:\d+\] plm:ssh: Warning: setpgid.*",
    # srun, where the cluster binds no processes.
    r"srun: cluster configuration lacks support for cpu binding",
    # Hydra, of a process that has ended before it was told that its input is over.
    r"\[(mpiexec|proxy:[\d:]+)@[\w.-]+\] HYDU_sock_write \([\w./]+:\d+\): write error \(Bad file descriptor\)",
]
# PRRTE, of the folder that virtual hosts share.
REMOVED_FILE = r"-{70,}\nWe attempted to remove a file.*?\n-{70,}\n *\n?"


def remove(text):
    """The text without these lines."""
    text = re.sub(REMOVED_FILE, "", text, flags=re.DOTALL)
    return "".join(line for line in text.splitlines(True)
                   if not any(re.fullmatch(known, line.rstrip("\n")) for known in LINES))
