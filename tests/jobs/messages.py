"""Messages of library and launcher: names in them are escaped, and failed writes change no exit code."""

import os

FORGED = "mpiexec: rank 9 has won"
NAME = f"a\n{FORGED}\x1b[2J\r"
SHOWN = rf"a\n{FORGED}\u{{1b}}[2J\r"

# For each use of the name by the program: its environment variables, and the exit code.
USES = {
    "comm": ({}, 6),
    "abort": ({}, 3),
    "hang": ({}, 124),
    "left": ({"FASTPATH_CHECK": "1"}, 0),
    "file": ({}, None),
    "spawn": ({}, None),
    "info": ({}, None),
    "service": ({}, None),
    "port": ({}, None),
    "win": ({"FASTPATH_CHECK": "1"}, None),
    "told": ({"FASTPATH_REPORT": "1"}, 0),
    "told-json": ({"FASTPATH_REPORT": "json"}, 0),
    "kept": ({"FASTPATH_REPORT": "1"}, 0),
}


def _find_forged(text):
    """Returns a line that only a name can have produced, or a control character; None if there is neither."""
    for line in text.splitlines():
        if line.startswith(FORGED) or any(ord(c) < 32 or ord(c) == 127 for c in line):
            return line
    return None


def case_names(session):
    """A name in a message can neither start a line nor control a terminal."""
    for how, (env, code) in USES.items():
        job = session.mpirun(2, [session.binary("names"), how, NAME], timeout=1 if how == "hang" else 60, env=env)
        outcome = job.finish()
        said = outcome.err + outcome.out
        code = code if code is not None else outcome.code
        problem = outcome.problem(code, quiet=False)
        if not problem and code not in (0, 124) and "fatal error" not in said and how != "abort":
            problem = "no fatal error is reported"
        if not problem and _find_forged(said):
            problem = f"a name has produced the line {_find_forged(said)!r}"
        # In JSON these characters are escaped once more.
        if not problem and SHOWN.split("\\u")[0] not in said:
            problem = f"{SHOWN!r} is in no message"
        if problem:
            return f"{how}: {problem}", outcome.text()
    return None


def case_standard_error_full(session):
    """Notices and reports that cannot be written are lost, and change no exit code."""
    for env in [{"FASTPATH_REPORT": "1"}, {"FASTPATH_REPORT": "json"}, {"FASTPATH_BOGUS": "1"}, {"FASTPATH_CHECK": "1"}]:
        script = 'exec "$@" 2>/dev/full'
        words = ["sh", "-c", script, "sh", session.binary("names"), "told", "a name"]
        for job in [session.mpirun(2, words, env=env), session.start(words, env=env)]:
            outcome = job.finish()
            if outcome.problem():
                return f"{env}: {outcome.problem()}", outcome.text()
    fastpath = os.path.join(session.prefix, "bin", "fastpath")
    for words, code in [([fastpath, "bench", "nosuch"], 2), ([fastpath, "ps", "999999999"], 1),
                        ([session.mpiexec, "-n", "1", "./nosuch"], 127)]:
        outcome = session.start(["sh", "-c", 'exec "$@" 2>/dev/full', "sh", *words]).finish()
        if outcome.problem(code):
            return f"{words}: {outcome.problem(code)}", outcome.text()
    return None
