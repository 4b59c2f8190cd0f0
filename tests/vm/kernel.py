"""The kernel of the virtual machine: Debian's package, unpacked into the cache of the tests and never installed."""

import glob
import lzma
import os
import shutil
import struct
import subprocess
import tempfile

from harness import cache

from .trouble import Trouble

# Name in the cache.
NAME = "vm-kernel"

# Package that depends on the newest kernel of the release.
PACKAGE = "linux-image-amd64"

# Modules of the package that are kept: the others are drivers of devices that the machine lacks.
KEPT = ["arch", "block", "crypto", "lib", "net", "fs/9p", "fs/fscache", "fs/fuse", "fs/lockd", "fs/netfs", "fs/nfs",
        "fs/ext4", "fs/jbd2", "fs/mbcache.ko", "fs/quota", "drivers/block/loop.ko", "drivers/char",
        "drivers/infiniband", "drivers/virtio", "drivers/net/veth.ko", "drivers/net/dummy.ko"]

# Load order. Soft-RoCE needs a checksum by name and does not load it.
MODULES = ["crc32_generic", "virtio_pci", "virtio_console", "veth", "sch_netem", "ib_uverbs", "rdma_rxe"]
# The kernel's NFS, server and client, which `nfs` loads for its cases.
NFS = ["nfsd", "nfsv3", "nfsv4"]
# Quotas of ext4, which needs a checksum by name, for `quota`.
QUOTA = ["crc32c_generic", "loop", "quota_v2", "ext4"]


class Kernel:
    """An unpacked kernel: `release`, `image` to boot, and its modules."""

    def __init__(self, folder):
        self.folder = folder
        self.release = os.path.basename(glob.glob(os.path.join(folder, "lib/modules/*"))[0])
        self.image = os.path.join(folder, "vmlinux")
        self._modules = os.path.join(folder, "lib/modules", self.release)

    def modules(self, wanted):
        """Files of the modules `wanted` and their dependencies, in load order."""
        needs, order = {}, []
        with open(os.path.join(self._modules, "modules.dep"), encoding="utf-8") as file:
            for line in file:
                path, _, others = line.partition(":")
                needs[_module_name(path)] = (path, [_module_name(other) for other in others.split()])
        with open(os.path.join(self._modules, "modules.builtin"), encoding="utf-8") as file:
            builtin = {_module_name(line.strip()) for line in file}

        def visit(name):
            if name in builtin or name in order:
                return
            if name not in needs:
                raise Trouble(f"the kernel {self.release} has no module {name}", "add its folder to KEPT in tests/vm/kernel.py")
            for other in needs[name][1]:
                visit(other)
            order.append(name)

        for name in wanted:
            visit(name)
        return [os.path.join(self._modules, needs[name][0]) for name in order]


def _module_name(path):
    return os.path.basename(path).removesuffix(".ko").replace("-", "_")


def fetch(again=False):
    """The kernel in the cache; fetched from Debian's archive if it is missing, or if `again` is set."""
    return Kernel(cache.entry(NAME, KEPT, _make, again))


def is_there():
    """Returns whether the cache has a kernel."""
    return cache.has(NAME, KEPT, _make)


def _make(folder):
    package = _newest_package()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        _run(["apt-get", "download", "-q", package], cwd=scratch)
        _unpack(glob.glob(os.path.join(scratch, "*.deb"))[0], folder)
    release = os.path.basename(glob.glob(os.path.join(folder, "lib/modules/*"))[0])
    _run(["depmod", "-b", folder, release])
    _write_image(os.path.join(folder, "boot", "vmlinuz-" + release), os.path.join(folder, "vmlinux"))
    shutil.rmtree(os.path.join(folder, "boot"))


def _newest_package():
    """Name of the real package for the virtual package PACKAGE."""
    said = subprocess.run(["apt-cache", "depends", PACKAGE], capture_output=True, text=True).stdout
    names = [line.split()[-1] for line in said.splitlines() if "Depends: linux-image-" in line]
    if not names:
        raise Trouble(f"apt does not know the package {PACKAGE}",
                      f"run `apt-get update` on Debian; elsewhere, run `scripts/vm fetch` on Debian, and copy its {cache.root()}/{NAME}")
    return names[0]


def _unpack(package, folder):
    kept = ["./boot/vmlinuz-*", "./lib/modules/*/modules.*", *(f"./lib/modules/*/kernel/{name}*" for name in KEPT)]
    archive = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE)
    _run(["tar", "-x", "-C", folder, "--wildcards", *kept], stdin=archive.stdout)
    if archive.wait() != 0:
        raise Trouble(f"{package} cannot be unpacked", "start the test again; it downloads the package again")


def _write_image(compressed, path):
    """The decompressed kernel: an emulated processor would take seconds to decompress it."""
    with open(compressed, "rb") as file:
        data = file.read()
    # Boot protocol 2.08 (Documentation/x86/boot.rst): sectors of set-up code, then offset and length of the payload.
    start = (data[0x1f1] + 1) * 512
    offset, length = struct.unpack_from("<II", data, 0x248)
    payload = data[start + offset:start + offset + length]
    try:
        whole = lzma.LZMADecompressor().decompress(payload)
    except lzma.LZMAError as error:
        raise Trouble(f"{os.path.basename(compressed)} is not compressed by xz: {error}", "add its compression to _write_image") from None
    with open(path, "wb") as file:
        file.write(whole)


def _run(words, **more):
    try:
        done = subprocess.run(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, **more)
    except FileNotFoundError:
        raise Trouble(f"there is no command {words[0]}", "run tests/setup, which installs missing packages") from None
    if done.returncode != 0:
        raise Trouble(f"{' '.join(words[:3])} fails: {done.stderr.strip()}", "correct the cause in the message")
