"""`fastpath` on several virtual hosts: bench, compare, doctor and ps. Needs root, for the hosts."""

import json
import os
import subprocess

from harness import engines
from harness.host_engines import lacks_hosts, three_hosts
from harness.hosts import Hosts
from harness.slices import sliced
from jobs.verdicts import _await_ready


def _use_tool(session, hosts, words, env):
    """Runs a command of `fastpath` about h1 and h2, and returns its outcome."""
    tool = os.path.join(session.prefix, "bin", "fastpath")
    folder = os.path.dirname(engines.Hydra().mpiexec)
    reach = [f"--mpiexec-arg={word}" for word in ("-launcher", "ssh", "-launcher-exec", hosts.rsh)]
    cache = os.path.join(session.build, "cache")  # cache of the benchmark program, as in bench.py
    set_ = [f"PATH={folder}:{os.environ['PATH']}", f"XDG_CACHE_HOME={cache}", *(f"{name}={value}" for name, value in env.items())]
    command = ["env", *set_, tool, *words, *reach, "--host", "h1,h2"]
    running = session.start(hosts.beside("h0", command), timeout=120)
    running.await_end(10)
    return running.finish()


def _judge(outcome, code, texts):
    """Returns what is wrong with a report in JSON, and the report."""
    if problem := outcome.problem(code, quiet=False):
        return problem, {}
    report = json.loads(outcome.out)
    said = [trouble["what"] for trouble in report["diagnostics"]]
    if len(said) != len(texts) or not all(any(text in one for one in said) for text in texts):
        return f"it prints {said}", report
    return None, report


def case_bench(session):
    """Messages between two hosts are measured in addition to a bare socket between them."""
    if reason := lacks_hosts():
        return session.skip("hosts_tools.bench", reason)
    with Hosts(3) as hosts:
        words = ["bench", "latency", "bandwidth", "--sizes", "8,64K", "--duration", "20ms", "--no-progress", "--json", "-"]
        outcome = _use_tool(session, hosts, words, {})
        if problem := outcome.problem(quiet=False):
            return problem, outcome.text()
        cases = json.loads(outcome.out)["cases"]
        seen = {(case["test"], case["bytes"]): case.get("floor_of") for case in cases}
        wanted = {("latency", 8): "bare socket", ("latency", 65536): "bare socket",
                  ("bandwidth", 8): "bare socket, stream", ("bandwidth", 65536): "bare socket, stream"}
        counts = [case["floor"]["count"] for case in cases if case.get("floor")]
        if seen != wanted or len(counts) != 4 or min(counts) == 0:
            return f"cases {seen}, samples of the floor {counts}", outcome.text()
    return None


@sliced
def case_compare(session):
    """Two MPIs are compared on two hosts, in addition to a bare socket between them. Each has its own launcher,
    which starts a rank on each host."""
    if reason := lacks_hosts():
        return session.skip("hosts_tools.compare", reason)
    with Hosts(3) as hosts:
        mpich = os.path.dirname(engines.Hydra().mpiexec)
        peer = ["--peer", f"mpich={mpich}/mpicc,{mpich}/mpiexec.hydra",
                "--peer-arg", f"mpich:-launcher,ssh,-launcher-exec,{hosts.rsh}"]
        words = ["compare", "--tests", "latency", "--sizes", "8", "--rounds", "2", "--iterations", "100", "--no-progress",
                 "--json", "-", *peer]
        outcome = _use_tool(session, hosts, words, {})
    if problem := outcome.problem(quiet=False):
        return problem, outcome.text()
    report = json.loads(outcome.out)
    rows = [(row["peer"], row["test"], row["floor_of"], len(row["pairs"]), len(row["floors"])) for row in report["rows"]]
    if rows != [("mpich", "latency", "bare socket", 2, 2)] or report["missing"]:
        return f"rows {rows}, missing {report['missing']}", outcome.text()
    return None


@sliced
def case_doctor(session):
    """Routes between two hosts: every pair of addresses, the connection that a job would use, and diagnostics."""
    if reason := lacks_hosts():
        return session.skip("hosts_tools.doctor", reason)

    def examine(words, env):
        return _use_tool(session, hosts, ["doctor", "--engine", "hydra", *words], env)

    with Hosts(3) as hosts:
        for name in ("h1", "h2"):
            hosts.add_network(name, "docker0", "172.17.0.1/16")
        hosts.add_network("h2", "vpn0", "192.0.2.2/24")
        # A network without a route: no answer arrives.
        hosts.set_up("h1", "route add 192.0.2.0/24 via 10.77.0.10")
        text = examine([], {})
        if text.problem() or "a job would use" not in text.out or "10.77.0.11 to 10.77.0.12" not in text.out:
            return text.problem() or "the text does not say what a job would use", text.text()
        outcome = examine(["--json"], {})
        problem, report = _judge(outcome, 0, [])
        if problem:
            return problem, outcome.text()
        calls = {(call["from"], call["to"]): call["outcome"] for call in report["tried"][0]}
        wanted = {
            (None, "10.77.0.12"): {"reached"}, ("10.77.0.11", "10.77.0.12"): {"reached"},
            # The answer goes to h2's own bridge.
            ("172.17.0.1", "10.77.0.12"): {"silent"},
            (None, "192.0.2.2"): {"silent"}, ("10.77.0.11", "192.0.2.2"): {"silent"},
            # The host's own address: no process listens there, or the command itself does.
            (None, "172.17.0.1"): {"refused", "stranger"},
        }
        wrong = [pair for pair, outcomes in wanted.items() if calls.get(pair) not in outcomes]
        speed = report["speeds"][0].get("Ok", {})
        if wrong or not speed or min(speed["bandwidth_mb_s"] + speed["half_round_trip_us"]) <= 0:
            return f"calls {wrong}, speed {speed}", outcome.text()
        if speed["path_mtu"] != 1500 or len(report["used"]) != 1:
            return "path MTU or connections", outcome.text()
        hosts.set_up("h2", "link set eth0 mtu 1400")
        ways = [
            ({"FASTPATH_INTERFACES": "vpn0,eth0"}, 0, ["192.0.2.2 is tried first and does not answer", "10.77.0.11 sends packets of 1500"]),
            ({"FASTPATH_INTERFACES": "docker0"}, 1, ["neither host reaches the other"]),
            ({"FASTPATH_INTERFACES": "eth7"}, 1, ["no other host can reach this host"] * 2),
        ]
        for env, code, texts in ways:
            outcome = examine(["--json"], env)
            problem, _ = _judge(outcome, code, texts)
            if problem:
                return f"{env}: {problem}", outcome.text()
    return None


def case_doctor_firewall(session):
    """A firewall drops packets to some ports of a host: `doctor` reports it if FASTPATH_PORTS allows those ports,
    and reports nothing for others."""
    if reason := lacks_hosts():
        return session.skip("hosts_tools.doctor_firewall", reason)
    with Hosts(3) as hosts:
        def drop(name):
            # Move the lookup of the host's own addresses behind the new rule, which would otherwise have no effect.
            hosts.set_up(name, "rule add pref 100 lookup local")
            hosts.set_up(name, "rule del pref 0")
            hosts.set_up(name, "rule add pref 10 iif eth0 ipproto tcp dport 31000-31999 blackhole")

        drop("h2")
        ways = [("32000-32099", 0, []),
                ("31000-31099", 0, ["connections work only from h2 to h1"])]
        for ports, code, texts in ways:
            outcome = _use_tool(session, hosts, ["doctor", "--engine", "hydra", "--json"], {"FASTPATH_PORTS": ports})
            problem, _ = _judge(outcome, code, texts)
            if problem:
                return f"ports {ports}: {problem}", outcome.text()
        drop("h1")
        outcome = _use_tool(session, hosts, ["doctor", "--engine", "hydra", "--json"], {"FASTPATH_PORTS": "31000-31099"})
        problem, _ = _judge(outcome, 1, ["neither host reaches the other"])
        return problem, outcome.text()


def case_doctor_differences(session):
    """Hosts with other limits or with another release of Fastpath are reported."""
    if reason := lacks_hosts():
        return session.skip("hosts_tools.doctor_differences", reason)
    with Hosts(3) as hosts:
        tool = os.path.join(session.prefix, "bin", "fastpath")
        plain, limited = hosts.rsh, os.path.join(hosts.folder, "limited")
        with open(limited, "w", encoding="ascii") as file:
            # Without the right to lock unlimited memory.
            file.write(f'#!/bin/sh\ncase " $* " in *" h2 "*) ulimit -n 200; ulimit -l 64; '
                       f'exec setpriv --bounding-set=-ipc_lock {plain} "$@";; esac\nexec {plain} "$@"\n')
        os.chmod(limited, 0o755)
        hosts.rsh = limited
        outcome = _use_tool(session, hosts, ["doctor", "--engine", "hydra", "--json"], {})
        problem, _ = _judge(outcome, 0, ["limits on open files", "different limits on locked memory"])
        if problem or "200" not in outcome.out or "65536 bytes" not in outcome.out:
            return f"limits: {problem}", outcome.text()
        hosts.rsh = plain
        # A copy of the tool that differs only in its version number.
        with open(tool, "rb") as file:
            program = file.read()
        version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
        other = os.path.join(hosts.folder, "fastpath")
        with open(other, "wb") as file:
            file.write(program.replace(version.encode(), b"9" * len(version)))
        os.chmod(other, 0o755)
        subprocess.run(hosts.on("h2", ["mount", "--bind", other, tool]), check=True)
        outcome = _use_tool(session, hosts, ["doctor", "--engine", "hydra", "--json"], {})
        problem, _ = _judge(outcome, 1, ["different versions of Fastpath"])
        return problem, outcome.text()


def case_ps(session):
    """`fastpath ps --host`: the ranks of a job on all of its hosts, and those that wait for each other."""
    if reason := lacks_hosts():
        return session.skip("hosts_tools.ps", reason)
    with three_hosts(session) as (hosts, way):
        job = session.start(way.on_hosts(1, [session.binary("verdicts"), "ring"]), timeout=100)
        _await_ready(job, 2)
        found, why = {}, []
        # Ranks publish what they wait for once they sleep; a verdict needs waits of a second.
        for _ in range(200):
            outcome = _use_tool(session, hosts, ["ps", "--why", "--json", "--engine", "hydra"], {})
            if problem := outcome.problem():
                job.finish()
                return problem, outcome.text()
            found = json.loads(outcome.out)
            why = [one["why"] for one in found.get("why", [])]
            if why and "waits for rank 1, which waits for rank 0" in why[0]:
                break
        text = _use_tool(session, hosts, ["ps", "--why", "--engine", "hydra"], {})
        job.process.terminate()
        job.await_end(10)
        job.finish()
    ranks = {host["host"]: [rank["rank"] for entry in host["jobs"] for rank in entry["ranks"]] for host in found["hosts"]}
    if ranks != {"h1": [0], "h2": [1]} or len({entry["id"] for host in found["hosts"] for entry in host["jobs"]}) != 1:
        return f"ranks {ranks}", json.dumps(found)
    if len(why) != 1 or "rank 0 waits for rank 1, which waits for rank 0" not in why[0]:
        return f"why {why}", json.dumps(found)
    listed = all(f"on h{rank + 1}" in text.out and f"rank {rank} (process" in text.out for rank in (0, 1))
    numbers = [entry["job"] for entry in found["hosts"][0]["jobs"]]
    is_named = f"job {numbers[0]} on h1: rank 0 waits for rank 1" in text.out
    return None if listed and is_named else ("the list lacks something", text.text())
