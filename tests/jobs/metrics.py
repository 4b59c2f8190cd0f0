"""Metrics of jobs for monitoring: FASTPATH_METRICS at the end, `fastpath ps --metrics` while a job runs. The parsers of
Prometheus's Python client read both forms, and strict checks add what node_exporter refuses."""

import json
import os
import re
import subprocess

from harness import packages
from jobs.profile import check_printed
from jobs.ps import _end, _ps
from jobs.verdicts import _await_ready, _await_sleep, _start

# Prints the samples of a file: a line of JSON each, with name, labels and value.
PARSER = """
import json, sys
if sys.argv[1] == "openmetrics":
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
else:
    from prometheus_client.parser import text_string_to_metric_families as parse
for family in parse(sys.stdin.read()):
    for sample in family.samples:
        print(json.dumps([sample.name, sample.labels, sample.value, family.type, family.unit]))
"""


def _parse(text, form):
    """Returns {(name, rank, protocol, path): value}. Raises ValueError if a parser refuses the text."""
    python = os.path.join(packages.python("prometheus_client==0.26.0"), "bin", "python")
    done = subprocess.run([python, "-c", PARSER, form], input=text, capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(f"{form}: {done.stderr}")
    samples = {}
    for line in done.stdout.splitlines():
        name, labels, value, kind, unit = json.loads(line)
        if not re.fullmatch("fastpath_[a-z_]+", name) or "job" not in labels or "host" not in labels:
            raise ValueError(f"{name} or its labels {labels} are wrong")
        if (kind == "counter") != name.endswith("_total") or form == "openmetrics" and "bytes" in name and unit != "bytes":
            raise ValueError(f"{name} is a {kind} of unit {unit}")
        samples[name, labels.get("rank"), labels.get("protocol"), labels.get("path")] = value
    return samples


def _refused_by_node_exporter(text):
    """Returns what node_exporter refuses: unknown comments, timestamps, samples without a TYPE line."""
    kinds = {}
    for line in text.splitlines():
        if line.startswith("#"):
            match = re.fullmatch(r"# (HELP|TYPE) (\S+) (.+)", line)
            if not match:
                return line
            if match[1] == "TYPE":
                kinds[match[2]] = match[3]
        elif not re.fullmatch(r'[a-z_]+\{[^{}]*\} [0-9.]+', line) or line.partition("{")[0] not in kinds:
            return line
    return None if set(kinds.values()) == {"counter", "gauge"} else str(kinds)


def _judge(text, form, wanted):
    """Returns what is wrong with a text of metrics, or None. It must have the `wanted` values, and may have others."""
    refused = form == "prometheus" and _refused_by_node_exporter(text)
    if refused:
        return f"node_exporter refuses: {refused}", text
    try:
        samples = _parse(text, form)
    except ValueError as problem:
        return str(problem), text
    wrong = {key: samples.get(key) for key, value in wanted.items() if samples.get(key) != value}
    return (f"{form}: these differ: {wrong} from {wanted}", text) if wrong else None


def case_end(session):
    """The counters of known ranks at the end of the job, in each form."""
    sent = {("fastpath_sent_messages_total", str(rank), "eager", "memory"): 7 if rank == 0 else 0 for rank in range(2)}
    sent |= {("fastpath_sent_bytes_total", str(rank), "eager", "memory"): 7000 if rank == 0 else 0 for rank in range(2)}
    for name, form in (("job.prom", "prometheus"), ("job.openmetrics", "openmetrics")):
        path = os.path.join(session.folder, name)
        outcome = session.mpirun(2, [session.binary("profile_counts"), "sends"], env={"FASTPATH_METRICS": path}).finish()
        if problem := outcome.problem():
            return problem, outcome.text()
        with open(path, encoding="utf-8") as file:
            text = file.read()
        wanted = {**sent, ("fastpath_job_exit_code", None, None, None): 0, ("fastpath_job_ranks", None, None, None): 2}
        if problem := _judge(text, form, wanted):
            return problem
    # No temporary file is left.
    left = sorted(os.listdir(session.folder))
    return None if left == ["job.openmetrics", "job.prom"] else f"the folder has {left}"


def case_failed_job(session):
    """A job keeps its exit code if it fails, and if the file cannot be written. The exit code is a metric."""
    path = os.path.join(session.folder, "job.prom")
    words = [session.binary("profile_counts"), "abort"]
    outcome = session.mpirun(2, words, env={"FASTPATH_METRICS": path}).finish()
    if problem := outcome.problem(7, quiet=False):
        return problem, outcome.text()
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if not re.search(r"^fastpath_job_exit_code\{.*\} 7$", text, re.MULTILINE):
        return "the exit code is missing", text
    env = {"FASTPATH_METRICS": os.path.join(session.folder, "none", "job.prom")}
    outcome = session.mpirun(2, [session.binary("profile_counts")], env=env).finish()
    return check_printed(outcome, "no metrics were written", "the reason")


def case_running(session):
    """`fastpath ps --metrics` has the counters and queues of running ranks, in each form."""
    job = _start(session, 2, "traffic", timeout=60, env={"FASTPATH_WAIT": "sleep"})
    _await_ready(job, 2)
    _await_sleep(job, [0, 1])
    wanted = {
        ("fastpath_sent_messages_total", "0", "eager", "memory"): 5,
        ("fastpath_sent_bytes_total", "0", "rendezvous", "memory"): 2 << 20,
        ("fastpath_unexpected_queue_messages", "1", None, None): 6,
        ("fastpath_posted_receives", "1", None, None): 4,
        ("fastpath_active_send_bytes", "0", None, None): 2 << 20,
    }
    try:
        for form in ("prometheus", "openmetrics"):
            listed = _ps(session, job.process.pid, f"--metrics={form}")
            if listed.returncode != 0:
                return "ps failed", listed.stderr
            if problem := _judge(listed.stdout, form, wanted):
                return problem
    finally:
        _end(job)
    return None
