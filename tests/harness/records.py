"""Records of tests and parts for tests/parts: lines of JSON in the folder that TEST_RECORDS names.

{"test": NAME, "seconds": S, "processor_seconds": S, "outcome": "passed", "repeat": COMMAND}
{"part": COMMAND, "seconds": S, "processor_seconds": S, "counts": TEXT, "failures": [[LINE, COMMAND], ...]}

Records of other tools are read as well: JUnit's XML, and libtest's lines of JSON.
"""

import glob
import json
import os
import xml.etree.ElementTree

FOLDER = "TEST_RECORDS"


def record(**fields):
    """Appends one record, if TEST_RECORDS is set."""
    folder = os.environ.get(FOLDER)
    if folder:
        with open(os.path.join(folder, f"{os.getpid()}.jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")


def read(folder):
    """Returns all records in a folder, of every form, in no particular order."""
    found = []
    for path in sorted(glob.glob(os.path.join(folder, "**"), recursive=True)):
        if path.endswith(".xml"):
            found += read_junit(path)
        elif path.endswith((".json", ".jsonl")):
            with open(path, encoding="utf-8") as file:
                found += [one for line in file if (one := _read_line(line))]
    return found


def _read_line(line):
    """Returns the record in a line; None if the line has none."""
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    if fields.get("type") == "test" and fields.get("event") in ("ok", "failed"):
        outcome = {"ok": "passed", "failed": "failed"}[fields["event"]]
        return {"test": fields["name"], "seconds": float(fields.get("exec_time", 0)), "outcome": outcome}
    return fields if "test" in fields or "part" in fields else None


def read_junit(path):
    """The tests in a JUnit report."""
    found = []
    for suite in xml.etree.ElementTree.parse(path).iter("testsuite"):
        for case in suite.iter("testcase"):
            bad = case.find("failure") is not None or case.find("error") is not None
            outcome = "failed" if bad else "skipped" if case.find("skipped") is not None else "passed"
            name = f"{case.get('classname') or suite.get('name')} {case.get('name')}"
            found.append({"test": name, "seconds": float(case.get("time") or 0), "outcome": outcome})
    return found
