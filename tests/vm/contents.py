"""Contents of the machine: the tools of every run, the project's installation, and the files that a run names."""

import contextlib
import glob
import hashlib
import os
import shlex
import shutil
import subprocess
import time

from harness import cache, packages

from . import kernel
from .image import Image
from .trouble import Trouble

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
GUEST = os.path.join(HERE, "guest")

# Debian programs in every machine, and the package of each.
PROGRAMS = {
    "bash": "bash", "busybox": "busybox-static", "ip": "iproute2", "tc": "iproute2", "rdma": "iproute2",
    "chrt": "util-linux", "unshare": "util-linux", "nsenter": "util-linux", "setsid": "util-linux", "setpriv": "util-linux",
    "mke2fs": "e2fsprogs",
    "ibv_devinfo": "ibverbs-utils",
    "ib_send_lat": "perftest", "ib_write_lat": "perftest", "ib_read_lat": "perftest", "ib_send_bw": "perftest",
    "ib_write_bw": "perftest", "ib_read_bw": "perftest", "ib_atomic_lat": "perftest",
}


def missing():
    """Packages whose programs are missing on this machine."""
    needed = {**PROGRAMS, "depmod": "kmod", "qemu-system-x86_64": "qemu-system-x86", "ldd": "libc-bin", "strip": "binutils"}
    lacking = {package for program, package in needed.items() if _find(program) is None}
    if not _providers():
        lacking.add("ibverbs-providers")
    return sorted(lacking)


def _find(program):
    return shutil.which(program, path="/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin")


def _providers():
    """The provider of Soft-RoCE, which is loaded by name and so is not a shared library of any program."""
    return glob.glob("/usr/lib/*/libibverbs/librxe-rdmav*.so")


def base_disk(found):
    """The archive with the kernel's modules and the tools of Debian, and its path in the cache."""
    image = Image()
    for folder in ["/proc", "/sys", "/dev", "/root", "/vm/busybox", "/etc"]:
        image.add_folder(folder)
    for program in PROGRAMS:
        image.add_file(_find(program))
    image.add_file(_find("sh"), "/bin/sh")
    image.add_file("/etc/libibverbs.d/rxe.driver")
    for provider in _providers():
        image.add_file(provider)
    # As texts, so that the archive is equal for every checkout.
    guest = {"init": "/init", "network": "/vm/network"}
    guest |= {f"bin/{name}": f"/vm/bin/{name}" for name in os.listdir(os.path.join(GUEST, "bin"))}
    for name, path in guest.items():
        with open(os.path.join(GUEST, name), encoding="utf-8") as file:
            image.add_text(path, file.read(), os.fstat(file.fileno()).st_mode & 0o755)
    image.add_text("/etc/hosts", "127.0.0.1 localhost\n10.0.0.1 vm\n10.1.0.1 a\n10.1.0.2 b\n")
    image.add_text("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n")
    image.add_text("/etc/group", "root:x:0:\n")
    for list_name, wanted in (("order", kernel.MODULES), ("nfs", kernel.NFS), ("quota", kernel.QUOTA)):
        order = []
        for path in found.modules(wanted):
            order.append(os.path.basename(path).removesuffix(".ko"))
            image.add_file(path, f"/vm/modules/{order[-1]}.ko")
        image.add_text(f"/vm/modules/{list_name}", "".join(f"{name}\n" for name in order))

    def make(folder):
        image.write(os.path.join(folder, "base.cpio"))

    return image, os.path.join(cache.entry("vm-base", [image.key()], make), "base.cpio")


class Contents:
    """Additions of one run: installation, further files, cases, variables."""

    def __init__(self, prefix, scratch, folder=ROOT, whole=False):
        """`scratch`: a folder for stripped programs. `whole`: programs keep their debug information."""
        self.prefix, self.scratch, self.folder = prefix, scratch, folder
        libraries = [os.path.join(prefix, "lib")] if prefix else []
        lighten = {} if whole else {"lighten": self._lighten}
        self.image = Image([*libraries, *os.environ.get("LD_LIBRARY_PATH", "").split(":")], **lighten)
        self.path, self.variables, self._cases = ["/vm/bin"], {}, 0
        self.alike = False  # whether address space layout randomization is off
        if prefix:
            if not os.path.exists(os.path.join(prefix, "bin", "mpiexec")):
                raise Trouble(f"{prefix} contains no installation", "run `make prefix`, or pass another folder to --prefix")
            for name in ["bin", "lib"]:
                self.image.add_file(os.path.join(prefix, name))
            self.path.append(os.path.join(prefix, "bin"))
            self.variables["LD_LIBRARY_PATH"] = os.path.join(prefix, "lib")
        self.image.add_folder(folder)

    def add_words(self, words):
        """Adds the files of this machine that a command names."""
        for word in words:
            if os.path.exists(word) and os.path.abspath(word) not in ("/", self.folder):
                self.image.add_file(word)
            elif word == words[0] and not any(os.path.exists(os.path.join(path, word)) for path in self.path):
                if found := _find(word):
                    self.image.add_file(found)

    def add_python(self):
        """Debian's interpreter and library, without its tests and documentation."""
        interpreter = os.path.realpath("/usr/bin/python3")
        said = subprocess.run([interpreter, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"],
                              capture_output=True, text=True, check=True).stdout.strip()
        self.image.add_file("/usr/bin/python3")
        unused = ("test", "idlelib", "lib2to3", "pydoc_data", "tkinter", "ensurepip", "distutils")
        for name in os.listdir(said):
            if name not in unused and not name.startswith("config-"):
                self.image.add_file(os.path.join(said, name))

    def add_hydra(self):
        """MPICH's launcher, which only starts processes and exchanges their data. Returns the reason if it is not
        available."""
        try:
            folder = os.path.join(packages.wheel("mpich"), "bin")
        except OSError as error:
            return error
        for name in ("mpiexec.hydra", "hydra_pmi_proxy"):
            self.image.add_file(os.path.join(folder, name))
        self.path.append(folder)
        return None

    def add_valgrind(self):
        """Debian's valgrind, with only the tool that counts instructions."""
        program, folder = _find("valgrind"), "/usr/libexec/valgrind"
        needed = [os.path.join(folder, name)
                  for name in ("callgrind-amd64-linux", "vgpreload_core-amd64-linux.so", "default.supp")]
        if program is None or not all(os.path.exists(path) for path in needed):
            raise Trouble("valgrind is not installed", "run `apt-get install valgrind`")
        for path in [program, f"{program}.bin", *needed]:
            if os.path.exists(path):
                self.image.add_file(path)

    def add_case(self, name, command, timeout, netem="", hosts=1, beside=False):
        folder = f"/vm/cases/{self._cases:04}"
        self._cases += 1
        options = {"name": name, "timeout": timeout, "netem": netem, "hosts": hosts, "beside": int(beside)}
        self.image.add_text(f"{folder}/options", _assignments(options))
        self.image.add_text(f"{folder}/command", command + "\n")

    def write(self, path, base, base_path, mode="cases", merged=False):
        settings = _assignments({"mode": mode, "folder": self.folder, "errors": 3 if merged else 4,
                                 "randomize": 0 if self.alike else 2})
        variables = {"MPI_TEST_DEVICES": "rxe0 rxe1", **self.variables}
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
        self.image.add_text("/vm/settings", settings + exports + f"PATH={shlex.quote(':'.join(self.path))}:$PATH\n")
        self.image.without(base).write(path)
        with open(path, "rb") as file:
            own = file.read()
        with open(path, "wb") as file, open(base_path, "rb") as first:
            shutil.copyfileobj(first, file)
            file.write(own)

    def _lighten(self, source):
        """A program without its debug information, which is several times smaller. Kept for the next run."""
        seen = os.stat(source)
        if seen.st_size < 4 << 20:
            return source
        folder = os.path.join(self.scratch, "stripped")
        os.makedirs(folder, exist_ok=True)
        origin = hashlib.sha256(os.path.realpath(source).encode()).hexdigest()[:8]
        path = os.path.join(folder, f"{os.path.basename(source)}-{origin}-{seen.st_mtime_ns}")
        if not os.path.exists(path):
            _remove_unused(folder, origin, os.path.basename(path))
            subprocess.run(["strip", "--strip-debug", "-o", f"{path}.{os.getpid()}", source], check=True)
            os.rename(f"{path}.{os.getpid()}", path)
        os.utime(path)
        return path


def _remove_unused(folder, origin, wanted):
    """Removes old versions of a file, and files unused for a week; another run may do this concurrently."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with contextlib.suppress(FileNotFoundError):
            old = f"-{origin}-" in name and not name.startswith(wanted)
            if old or os.stat(path).st_mtime < time.time() - 7 * 86400:
                os.unlink(path)


def _assignments(values):
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in values.items())
