"""The files of every package: an installed prefix without debug information, with licences; and what its programs need.

Only the standard library, so that a machine that builds Fastpath can pack it.

usage: tree.py FOLDER      (writes the licences of Fastpath and of its crates to FOLDER, for other packers)
"""

import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SUMMARY = "MPI 5.0 library with the standard ABI, its launcher, and tools that measure and diagnose"
# A file of this name tells mpifort to leave the installation alone: pip and dpkg remove only files that they know.
OWNED_NAME = "share/fastpath/packaged"
OWNED = "A package manager owns this installation. mpifort keeps the modules that it builds in the user's cache.\n"
# Packages of the workspace whose crates are in the installed files.
SHIPPED = [
    "fastpath-abi", "fastpath-abifort", "fastpath-profile", "fastpath-queues", "fastpath-launch", "fastpath-toolbox",
]
# Libraries of every Linux system, which a package may need. Others are opened at run time, if they are there.
SYSTEM_LIBRARIES = {
    "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1", "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
}
OWN_LIBRARIES = {"libmpi_abi.so.1"}


def version(build):
    """Returns the version of Cargo.toml."""
    return run([os.path.join(build, "fastpath-abigen"), "version"]).strip()


def install(build, prefix):
    """Installs a build in `prefix`, which need not be its place later: every file finds the others relative to itself.
    Removes debug information: lines of the sources, which make the files five times as large. Libraries keep the names
    of their functions, which reports print, and programs the symbols by which debuggers find ranks."""
    folder, name = os.path.split(os.path.abspath(prefix))
    # With DESTDIR no Fortran modules are built: they depend on compilers of this machine.
    run([os.path.join(ROOT, "install", "install.sh"), build, f"/{name}"], DESTDIR=folder)
    for path in elf_files(prefix):
        words = ["--strip-debug"] if "/lib/" in path else ["--strip-all"]
        # The linker driver of Zig exports no symbols of programs.
        if path.endswith("/mpiexec") and "MPIR_proctable" not in run(["nm", "-D", path]):
            words += ["--wildcard", "--keep-symbol=MPIR_*"]
        run(["strip", *words, path])


def file_time():
    """Returns the time of every packed file: SOURCE_DATE_EPOCH, or the earliest one that a zip file can hold."""
    return max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800)


def elf_files(folder):
    """Returns the programs and libraries of a folder, sorted, without symbolic links."""
    found = []
    for path in files(folder):
        if not os.path.islink(path):
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    found.append(path)
    return found


def files(folder):
    """Returns the paths of all files and links in a folder, sorted."""
    found = []
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        found += [os.path.join(place, name) for name in names + links]
    return sorted(found)


def glibc(paths):
    """Returns the highest version of glibc that ELF files need, as a pair of numbers. Exits if a file needs a library
    that not every system has."""
    highest = (2, 5)
    for path in paths:
        dynamic = run(["readelf", "--dynamic", "--wide", path])
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
        if strangers := needed - SYSTEM_LIBRARIES - OWN_LIBRARIES:
            sys.exit(f"{path} needs {', '.join(sorted(strangers))}, which is not on every system")
        names = run(["readelf", "--version-info", "--wide", path])
        versions = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", names)
        highest = max([highest, *((int(major), int(minor)) for major, minor in versions)])
    return highest


def licences():
    """Returns the licence files of Fastpath, by name, and those of the crates in its files as one text."""
    own = {name: read(os.path.join(ROOT, name)) for name in ("LICENSE-APACHE", "LICENSE-MIT")}
    return {**own, "THIRD-PARTY": third_party()}


def third_party():
    """Returns names, versions and licences of the crates in the installed files, with the text of each licence once."""
    target = re.search(r"^host: (.*)$", run(["rustc", "-vV"]), re.MULTILINE)[1]
    words = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", target]
    known = json.loads(run(words, folder=ROOT))
    packages = {package["id"]: package for package in known["packages"]}
    nodes = {node["id"]: node for node in known["resolve"]["nodes"]}
    waiting = [key for key, package in packages.items() if package["name"] in SHIPPED]
    reached = set(waiting)
    while waiting:
        for dependency in nodes[waiting.pop()]["deps"]:
            # No kind: neither of a build script nor of tests.
            is_normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_normal and dependency["pkg"] not in reached:
                reached.add(dependency["pkg"])
                waiting.append(dependency["pkg"])
    crates = [package for key, package in packages.items() if key in reached and package["source"]]
    crates.sort(key=lambda crate: (crate["name"], crate["version"]))
    text = ["The programs and libraries of Fastpath contain parts of these Rust crates, and of Rust's standard library",
            "(MIT OR Apache-2.0). The texts of the licences follow.", ""]
    texts = {}
    for crate in crates:
        text.append(f"{crate['name']} {crate['version']}: {crate['license'] or 'see its text'}")
        folder = os.path.dirname(crate["manifest_path"])
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if re.match(r"(LICEN[CS]E|COPYING|UNLICENSE|NOTICE)", name, re.IGNORECASE) and os.path.isfile(path):
                texts.setdefault(read(path).strip(), []).append(crate["name"])
    for words, names in texts.items():
        text += ["", "-" * 80, f"Of {', '.join(sorted(set(names)))}:", "", words]
    return "\n".join(text) + "\n"


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def run(words, folder=None, **variables):
    """Returns the output of a command; exits with its messages if it fails."""
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env={**os.environ, "LC_ALL": "C", **variables})
    except FileNotFoundError:
        sys.exit(f"{words[0]} is not installed (tests/setup installs it)")
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.rstrip().split("\n\n")[-1])
    for licence, text in licences().items():
        with open(os.path.join(sys.argv[1], licence), "w", encoding="utf-8") as written:
            written.write(text)
