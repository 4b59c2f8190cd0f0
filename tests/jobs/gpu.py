"""Buffers in device memory, by a fake driver whose device memory the processor cannot touch (tests/c/gpu)."""

import os
import re

from harness import program
from harness.slices import sliced

OVER = {"shm": {}, "tcp": {"FASTPATH_TRANSPORTS": "tcp"}, "check": {"FASTPATH_CHECK": "1"},
        "progress": {"FASTPATH_PROGRESS": "thread"}, "sleep": {"FASTPATH_WAIT": "sleep"},
        "without_cma": {"FASTPATH_DISABLE": "cma"}}
EVERY_CHANGE = {"shm", "tcp", "check"}


def _run(session, ranks, words, env):
    """Runs a program that loads the fake driver itself."""
    env = {"FAKE_CUDA": session.binary("fake_cuda"), **env}
    outcome = session.mpirun(ranks, [session.binary(words[0]), *words[1:]], env=env).finish()
    problem = outcome.problem()
    return (problem, outcome.text()) if problem else None


def _make_messages(env, *words):
    return lambda session: _run(session, 2, ["gpu_messages", *words], env)


def _make_calls(env, ranks):
    return lambda session: _run(session, ranks, ["gpu_calls", os.path.join(session.folder, "file")], env)


def _make_windows(env, ranks):
    return lambda session: _run(session, ranks, ["gpu_windows"], env)


for _over, _env in OVER.items():
    for _name, _case in {"messages": _make_messages(_env), "calls": _make_calls(_env, 2),
                         "windows": _make_windows(_env, 2)}.items():
        globals()[f"case_{_name}_{_over}"] = _case if _over in EVERY_CHANGE else sliced(_case)
case_messages_late = _make_messages({"FASTPATH_GPU": "on"}, "late")
case_calls_alone = _make_calls({}, 1)
case_calls_four = _make_calls({}, 4)
case_windows_alone = _make_windows({}, 1)
case_windows_four = _make_windows({}, 4)


def case_windows_fail(session):
    """A driver that cannot copy at the target is an error of the operation, and the target prints the cause."""
    env = {"FAKE_CUDA": session.binary("fake_cuda"), "FAKE_CUDA_FAIL": "cuMemcpyAsync:1:2"}
    outcome = session.mpirun(2, [session.binary("gpu_windows"), "fails"], env=env).finish()
    problem = outcome.problem(quiet=False)
    if not problem and "cuMemcpyAsync failed with error 2" not in outcome.text():
        problem = "the target prints no cause"
    return (problem, outcome.text()) if problem else None



def case_freed(session):
    """With checks, the use of freed device memory is an error of the call that finds it."""
    return _run(session, 1, ["gpu_freed"], {"FASTPATH_CHECK": "1"})


def case_driver_fails(session):
    """A failure of the driver is an error of the call; a failure that only costs time is none."""
    for fails, text in {
        "cuEventCreate:1:2": "cuEventCreate failed",
        "cuEventRecord:2:2": "cuEventRecord failed",
        "cuEventSynchronize:3:700": "cuEventSynchronize failed",
        "cuMemcpyAsync:4:2": "cuMemcpyAsync failed with error 2 (CUDA_ERROR_OUT_OF_MEMORY)",
        "cuMemHostRegister_v2:3:801": "served",
    }.items():
        wrong = _run(session, 1, ["gpu_errors", "5000000", text], {"FAKE_CUDA_FAIL": fails})
        if wrong:
            return wrong
    for fails, text in {
        "cuMemcpyAsync:1:2": "cuMemcpyAsync failed with error 2 (CUDA_ERROR_OUT_OF_MEMORY)",
        "cuStreamSynchronize:1:700": "device memory of CUDA device 1",
        "cuStreamCreate:1:2": "cuStreamCreate",
        "cuPointerGetAttributes:1:700": "cuPointerGetAttributes failed",
        "cuMemHostRegister_v2:1:801": "served",
        "cuMemcpy2DAsync_v2:1:1": "served",
    }.items():
        wrong = _run(session, 1, ["gpu_errors", "10000", text], {"FAKE_CUDA_FAIL": fails})
        if wrong:
            return wrong
    return None


def case_other_vendor(session):
    """Memory that the processor cannot read is refused if the driver of another vendor is loaded."""
    for name, vendor in {"libamdhip64.so.6": "HIP", "libze_loader.so.1": "Level Zero"}.items():
        library, source = os.path.join(session.folder, name), os.path.join(session.folder, "empty.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write("int unused;\n")
        complaint = program.build(library, [session.mpicc, "-shared", "-fPIC", "-o", library, source], [source])
        wrong = complaint and (complaint, "") or _run(session, 1, ["gpu_errors", "10000", vendor, library], {})
        if wrong:
            return wrong
    return None


# Arguments of MPI's functions that are buffers of data. Attached buffers and memory that MPI allocates stay in host
# memory.
BUFFERS = {"buf", "buffer", "sendbuf", "recvbuf", "inbuf", "outbuf", "inoutbuf", "origin_addr", "result_addr",
           "compare_addr"}
HOST_ONLY = re.compile(r"attach|detach|Win_(?!create$)|Buffer_|^T_")

# Programs of tests/c that run with all buffers in device memory, and those that do not, with the reason.
FOLDERS = ("coll", "comm", "io", "pt2pt", "rma", "type")
NOT_SERVED = {
    "alias": "expects an error for buffers that overlap, which copies do not",
    "coll_errors": "expects an error for buffers that overlap",
    "coll_refused": "expects an error for buffers that overlap",
    "comm_disconnect": "reads buffers of requests that it has not completed",
    "rma_objects": "compares the address of a window with the one that it passed",
    "rma_many": "measures the memory of a window, which the heap's second mapping changes",
    "pt2pt_late": "forks a child, which would share heap and stack",
    "pt2pt_silent": "counts allocations of the immediate path",
}
# Programs whose targets compute until an operation on their memory is complete: device memory needs the target's progress.
NEED_PROGRESS = {"rma_passive", "rma_small"}
PROGRAMS = [one for one in program.find() if os.path.basename(os.path.dirname(one.path)) in FOLDERS
            and one.name not in NOT_SERVED and not one.only and "-shared" not in one.link]
PROGRAMS_OF_EVERY_CHANGE = {"coll_forms", "coll_move", "file_access", "pt2pt_modes", "rma_move", "type_messages"}


def wrappers(header):
    """Wrappers in C of the functions of mpi.h that have buffers. They pass addresses of a device."""
    lines = []
    for name, arguments in re.findall(r"^int MPI_(\w+)\(([^()]*)\);", header, re.MULTILINE):
        names = [re.sub(r"\[.*?\]", "", one).split()[-1].lstrip("*") for one in arguments.split(",")]
        buffers = {"base"} if name == "Win_create" else BUFFERS
        if HOST_ONLY.search(name) or not buffers.intersection(names) or "void *" not in arguments:
            continue
        passed = ", ".join(f"device_address({one})" if one in buffers else one for one in names)
        lines.append(f"int MPI_{name}({arguments}) {{ return PMPI_{name}({passed}); }}")
    return lines


def _build_preloaded(session):
    """Builds the library that moves all buffers of a program to device memory. Returns its path, and the compiler's
    output if it fails."""
    source, library = (os.path.join(session.build, f"gpu_wrapped.{end}") for end in ("c", "so"))
    with open(os.path.join(session.prefix, "include", "mpi.h"), encoding="utf-8") as file:
        header = re.sub(r"\s*\n\s+", " ", file.read())
    gpu = os.path.join(program.FOLDER, "gpu")
    text = "\n".join(["#define _GNU_SOURCE", f'#include "{gpu}/wrapped.h"', *wrappers(header), ""])
    if program.read(source) != text:
        own = f"{source}.{os.getpid()}"
        with open(own, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(own, source)
    command = [session.mpicc, "-std=gnu11", "-O1", "-g", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library,
               source]
    return library, program.build(library, command, [source, f"{gpu}/wrapped.h", f"{gpu}/fake_cuda.c"])


def _make_program(one, ranks):
    def case(session):
        library, complaint = _build_preloaded(session)
        if complaint:
            return complaint, ""
        progress = {"FASTPATH_PROGRESS": "thread"} if one.name in NEED_PROGRESS else {}
        for args in one.args:
            # The launcher is not preloaded: a forked child would share the heap.
            words = ["env", f"LD_PRELOAD={library}", session.binary(one.name), *args]
            outcome = session.mpirun(ranks, words, timeout=one.timeout, env={**one.env, **progress}).finish()
            problem = outcome.problem(code=one.exit, quiet=one.quiet)
            if problem:
                return problem, outcome.text()
        return None

    return case


for _one in PROGRAMS:
    for _ranks in sorted({2, 4}.intersection(_one.ranks)):
        _case = _make_program(_one, _ranks)
        _is_due = _ranks == 2 and _one.name in PROGRAMS_OF_EVERY_CHANGE
        globals()[f"case_{_one.name}_on_{_ranks}"] = _case if _is_due else sliced(_case)
