"""A profiling library that wraps every function: it sees each call of the program once, and none that the library
makes itself. Linked, preloaded, and absent."""

import json
import os
import re
import subprocess

from harness import program

PROTOTYPE = re.compile(r"^(.*?)\bPMPI_(\w+)\((.*)\)\s*(?:__attribute__.*)?;$", re.DOTALL)


def _prototypes(session):
    """Result type, name without its prefix, parameter list of every function of the ABI in mpi.h."""
    command = [session.mpicc, "-DMPI_NO_F2C", "-DMPI_NO_REMOVED_NAMES", "-E", "-P", "-x", "c", "-"]
    text = subprocess.run(command, input="#include <mpi.h>\n", capture_output=True, text=True, check=True).stdout
    text = " ".join(text.split()).replace("; ", ";\n").replace("} ", "}\n")
    found = []
    for line in text.split("\n"):
        match = PROTOTYPE.match(line.strip())
        if match:
            found.append((match.group(1).replace("extern", "").strip(), match.group(2), match.group(3).strip()))
    return found


def _arguments(parameters):
    """Names of the parameters."""
    if parameters in ("void", ""):
        return []
    depth, part, parts = 0, "", []
    for letter in parameters:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += letter
    return [re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$", one).group(1) for one in [*parts, part]]


def _source(prototypes):
    lines = ["#include <mpi.h>", "#include <stdarg.h>", "#include <string.h>"]
    names = []
    for result, name, parameters in prototypes:
        if "..." in parameters:
            continue  # the arguments of MPI_Pcontrol are defined by the profiler
        lines.append(f"static long calls_{name};")
        lines.append(f"{result} MPI_{name}({parameters})")
        # Atomic: several threads may call.
        call = f"PMPI_{name}({', '.join(_arguments(parameters))})"
        lines.append(f"{{ __atomic_add_fetch(&calls_{name}, 1, __ATOMIC_RELAXED); return {call}; }}")
        names.append(name)
    lines.append("static const char *const names[] = {" + "".join(f'"MPI_{name}", ' for name in names) + "0};")
    lines.append("static long *const counts[] = {" + "".join(f"&calls_{name}, " for name in names) + "0};")
    lines.append("const char *const *profile_names(void) { return names; }")
    lines.append("long profile_calls(const char *name)\n{\n    for (int i = 0; names[i]; i++)\n"
                 "        if (!strcmp(names[i], name)) return *counts[i];\n    return -1;\n}")
    return "\n".join(lines) + "\n", len(names)


def _build(session):
    """The library, and its folder."""
    folder = os.path.join(session.folder, "profile")
    os.makedirs(folder, exist_ok=True)
    text, wrapped = _source(_prototypes(session))
    if wrapped < 500:
        raise RuntimeError(f"only {wrapped} functions were found in mpi.h")
    source = os.path.join(folder, "profile.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write(text)
    library = os.path.join(folder, "libprofile.so")
    made = subprocess.run([session.mpicc, "-shared", "-fPIC", "-O1", "-w", "-o", library, source],
                          capture_output=True, text=True)
    if made.returncode:
        raise RuntimeError(made.stderr)
    return folder, library


def _run(session, words):
    for ranks in (1, 3):
        problem = session.mpirun(ranks, [*words, "profiled"]).finish().problem()
        if problem:
            return f"{ranks} ranks: {problem}"
    return None


def case_preloaded(session):
    _, library = _build(session)
    return _run(session, ["env", f"LD_PRELOAD={library}", session.binary("profiled")])


def case_linked(session):
    folder, _ = _build(session)
    binary = os.path.join(folder, "profiled")
    command = [session.mpicc, "-std=gnu11", "-g", "-o", binary, program.source("profiled"), f"-L{folder}", "-lprofile",
               f"-Wl,-rpath,{folder}"]
    subprocess.run(command, check=True, capture_output=True)
    return _run(session, [binary])


def case_example(session):
    """The example for the tool interface counts each message, by peer and protocol."""
    source = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "profiler.c")
    library = os.path.join(session.build, "libprofiler.so")
    command = [session.mpicc, *program.FLAGS, "-shared", "-fPIC", "-o", library, source]
    complaint = program.build(library, command, [source])
    if complaint:
        return f"it does not compile: {complaint}"
    row = re.compile(r"^profiler: (short|eager|rendezvous) +(self|same host|other host|elsewhere) +(\d+) +(\d+)$", re.MULTILINE)
    for ranks in (1, 2, 3):
        words = ["env", f"LD_PRELOAD={library}", session.binary("profiled_messages")]
        outcome = session.mpirun(ranks, words).finish()
        if problem := outcome.problem(quiet=False):
            return f"{ranks} ranks: {problem}", outcome.text()
        found = {}
        for protocol, peers, messages, sent in row.findall(outcome.err):
            key = peers, protocol == "rendezvous"
            found[key] = tuple(map(sum, zip(found.get(key, (0, 0)), (int(messages), int(sent)))))
        wanted = {}
        for peers in ("self", "same host")[: 1 + (ranks > 1)]:
            wanted[peers, False] = (15 * ranks, (10 * 8 + 5 * 2000) * ranks)
            wanted[peers, True] = (3 * ranks, 3 * (1 << 20) * ranks)
        if found != wanted:
            return f"{ranks} ranks: {found} instead of {wanted}", outcome.text()
    return None


def case_listing(session):
    """`fastpath info --mpit` lists the whole tool interface, with scope or class, and binding."""
    outcome = session.start([os.path.join(session.prefix, "bin", "fastpath"), "info", "--mpit", "--json"]).finish()
    problem = outcome.problem()
    if problem:
        return problem, outcome.text()
    listing = json.loads(outcome.out)
    kinds = {"control_variables": {"readonly", "local", "all", "all_eq"}, "performance_variables": {"counter", "level", "highwatermark"},
             "events": {None}}
    for sort, known in kinds.items():
        for entry in listing[sort]:
            if entry.get("kind") not in known or entry["binding"] != "no_object" or not entry["meaning"]:
                return f"of {sort} one is described wrongly", str(entry)
    for sort in ("categories", "sources"):
        if not listing[sort] or any("binding" in entry or not entry["meaning"] for entry in listing[sort]):
            return f"{sort} are described wrongly", str(listing[sort])
    names = {entry["name"]: entry.get("kind") for sort in kinds for entry in listing[sort]}
    wanted = {"FASTPATH_WAIT": "all", "requests": "counter"}
    wrong = {name: names.get(name) for name, kind in wanted.items() if names.get(name) != kind}
    return (f"these are listed wrongly: {wrong}", outcome.out) if wrong else None
