"""Ranks on machines of FASTPATH_TOPOLOGY files: communicators by socket, NUMA node, L3 cache and core."""

import itertools
import json
import os
import subprocess


def write_topology(path, sockets, nodes, caches, cores):
    """Writes the file of a machine: NUMA nodes of each socket, L3 caches of each node, cores of each cache."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"processors:{sockets * nodes * caches * cores}\n")
        for l3, (socket, node, _) in enumerate(itertools.product(range(sockets), range(nodes), range(caches))):
            first = l3 * cores
            file.write(f"socket:{socket} numa:{socket * nodes + node} l3:{l3} cpus:{first}-{first + cores - 1}\n")


def _make(machine, ranks):
    def case(session):
        path = os.path.join(session.folder, f"machine_{'_'.join(map(str, machine))}_{ranks}")
        write_topology(path, *machine)
        words = [session.binary("hardware"), *map(str, machine)]
        outcome = session.mpirun(ranks, words, options=["--bind-to", "none"], env={"FASTPATH_TOPOLOGY": path}).finish()
        return outcome.problem(), outcome.text()

    case.needs = {"processors": ranks}
    return case


# Sockets, NUMA nodes of a socket, L3 caches of a node, cores of a cache.
for _machine in [(2, 1, 2, 2), (1, 1, 1, 2), (2, 2, 2, 1), (1, 1, 4, 2)]:
    for _ranks in (1, 2, 4, 8):
        globals()[f"case_{'x'.join(map(str, _machine))}_n{_ranks}"] = _make(_machine, _ranks)


def case_malformed_file_ends_the_job(session):
    path = os.path.join(session.folder, "malformed_topology")
    with open(path, "w", encoding="utf-8") as file:
        file.write("# machine\nsocket:0 cpus:0-1\nsocket:1 cpus:1-x\n")
    expected = f"FASTPATH_TOPOLOGY={path}: line 3: `cpus:1-x` is not a list such as 0-3,8"
    for launched in (True, False):
        env = {"FASTPATH_TOPOLOGY": path}
        words = [session.binary("hardware"), "1", "1", "1", "1"]
        outcome = (session.mpirun(2, words, env=env) if launched else session.start(words, env=env)).finish()
        if outcome.code == 0 or expected not in outcome.err:
            return f"launched: {launched}; the error does not have: {expected}", outcome.text()
    return None


def case_measured_caches_are_used(session):
    """`fastpath tune lines` stores a file. Jobs use its L3 caches where the kernel reports one for each socket."""
    fastpath = os.path.join(session.prefix, "bin", "fastpath")
    env = {**os.environ, "XDG_CACHE_HOME": session.folder}

    def run(*words):
        return subprocess.run([fastpath, *words], env=env, capture_output=True, text=True, timeout=120)

    made = run("tune", "lines")
    folder = os.path.join(session.folder, "fastpath")
    stored = [name for name in os.listdir(folder) if name.startswith("lines-")] if os.path.isdir(folder) else []
    if made.returncode != 0 or len(stored) != 1:
        return f"tune lines ends with {made.returncode} and stores {stored}", made.stdout + made.stderr
    machine = json.loads(run("info", "--json").stdout)["machine"]
    kernel, cores = machine["topology"], [core["threads"] for core in machine["cores"]]
    if kernel["line_ns"] is None:
        return "fastpath info does not show the measured times", str(kernel)
    if len(cores) < 2 or len(kernel["sockets"]) > 1 or len(kernel["l3_caches"]) > 1:
        return session.skip("hardware.measured_caches_are_used", "needs two cores that share their L3 cache")
    # A measurement that divides the cores.
    half = len(cores) // 2
    path = os.path.join(folder, stored[0])
    with open(path, encoding="utf-8") as file:
        lines = [line for line in file if not line.startswith("cache:")]
    halves = [sorted(sum(part, [])) for part in (cores[:half], cores[half:])]
    caches = ["cache: " + ",".join(map(str, cpus)) + "\n" for cpus in halves]
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(lines[:3] + caches + lines[3:])
    found = json.loads(run("info", "--json").stdout)["machine"]["topology"]
    if len(found["l3_caches"]) != 2 or "tune lines" not in found["source"]:
        return "fastpath info does not show the stored caches", str(found)
    lists = ",".join(str(cpus[0]) for cpus in halves)
    outcome = session.mpirun(2, ["true"], options=["--bind-to", f"user:{lists}", "--report-bindings"],
                             env={"XDG_CACHE_HOME": session.folder}).finish()
    lines = outcome.err.splitlines()
    for number in (0, 1):
        if not any(f"rank {number} is bound" in line and f"L3 cache {number}," in line for line in lines):
            return f"rank {number} is not in L3 cache {number}", outcome.text()
    return outcome.problem(quiet=False)


case_measured_caches_are_used.needs = {"processors": 2}
