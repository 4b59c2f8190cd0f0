"""Starts the virtual machine and follows its events."""

import fcntl
import io
import os
import selectors
import subprocess
import sys
import tarfile
import tempfile
import time

from .trouble import Trouble

QEMU = "qemu-system-x86_64"
MEMORY = "2G"
PROCESSORS = 2

# Seconds for the boot of the machine, and beyond the time limit of a case. A safety limit.
BOOT, GRACE = 300, 60
# Seconds for the boot under KVM. A processor may offer KVM without supporting it: then no event ever arrives.
BOOT_KVM = 10

# Kernel options for features that are slow on an emulated processor and of no use here.
KERNEL_LINE = ("quiet panic=-1 cryptomgr.notests mitigations=off nokaslr lsm= audit=0 nowatchdog tsc=reliable no_timer_check "
               "zswap.enabled=0 i8042.noaux i8042.nokbd preempt=full rcupdate.rcu_expedited=1 "
               "trace_clock=local random.trust_cpu=on "
               "initcall_blacklist=tpm_init,crypto_kdf108_init,load_system_certificate_list,init_encrypted,init_zswap")

CHANNELS = ["out", "err", "events", "files"]


class Machine:
    """A kernel and an initial RAM disk; `run` boots it once, `shell` connects it to the terminal."""

    def __init__(self, kernel, disk, log, cache, accelerator="auto"):
        self.kernel, self.disk, self.log, self.cache = kernel, disk, log, cache
        self.accelerator = accelerator

    def _command(self, accelerator, more):
        speed = {"kvm": ["-accel", "kvm", "-cpu", "host"], "tcg": ["-accel", "tcg,thread=multi", "-cpu", "max"]}
        return [QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35",
                *speed[accelerator], "-smp", str(PROCESSORS), "-m", MEMORY,
                "-kernel", self.kernel.image, "-initrd", self.disk, *more]

    def shell(self):
        """Runs an interactive shell in it; Ctrl-A X ends it."""
        line = f"console=ttyS0 {KERNEL_LINE}"
        words = self._command("tcg" if self.accelerator == "auto" else self.accelerator, ["-append", line, "-serial", "mon:stdio"])
        return subprocess.call(words)

    def run(self, follower):
        """Boots it and passes events to `follower`: `output(channel, bytes)`, `event(words) -> seconds until the next`.

        Returns the files that came back (a tar archive, possibly empty). An early stop raises Trouble.
        """
        if self.accelerator != "auto":
            return self._run(self.accelerator, BOOT, follower)
        refused = os.path.join(self.cache, "no-kvm")
        if not has_kvm() or _is_since_boot(refused):
            return self._run("tcg", BOOT, follower)
        try:
            return self._run("kvm", BOOT_KVM, follower)
        except NotUp:
            with open(refused, "w", encoding="utf-8") as file:
                file.write("KVM is offered but no machine starts under it\n")
            print("vm: /dev/kvm exists, but the virtual machine does not boot with it; continuing without KVM", file=sys.stderr)
            return self._run("tcg", BOOT, follower)

    def _run(self, accelerator, boot, follower):
        pipes = {name: os.pipe() for name in CHANNELS}
        words = ["-append", f"console=ttyS0 {KERNEL_LINE}", "-serial", f"file:{self.log}", "-device", "virtio-serial-pci"]
        for name, (_, inner) in pipes.items():
            words += ["-chardev", f"file,id={name},path=/proc/self/fd/{inner}", "-device", f"virtserialport,chardev={name}"]
        with tempfile.TemporaryFile() as complaints:
            try:
                process = subprocess.Popen(self._command(accelerator, words), stdin=subprocess.DEVNULL, stdout=complaints,
                                           stderr=complaints, pass_fds=[inner for _, inner in pipes.values()])
            except FileNotFoundError:
                raise Trouble(f"{QEMU} is not installed", "run tests/setup, which installs it (Debian: qemu-system-x86)") from None
            for _, inner in pipes.values():
                os.close(inner)
            try:
                finished, files = _follow(pipes, boot, follower)
            finally:
                if process.poll() is None:
                    _end(process)
                for outer, _ in pipes.values():
                    os.close(outer)
            if finished:
                return files
            complaints.seek(0)
            raise follower.cut_short(complaints.read().decode(errors="replace").strip() or self._last_words(), accelerator)

    def _last_words(self):
        try:
            with open(self.log, encoding="utf-8", errors="replace") as file:
                lines = file.readlines()
            # A kernel that panics prints its stack after the reason.
            stack = next((i for i, line in enumerate(lines) if "Call Trace:" in line), len(lines))
            return "".join(lines[max(0, stack - 25):stack]).strip()
        except OSError:
            return ""


class NotUp(Trouble):
    """The machine did not boot."""


def _end(process):
    try:
        process.wait(2)  # it is switching itself off
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _follow(pipes, boot, follower):
    """Reads the channels until all are closed or time is up. Returns whether the guest reported its end, and its
    files."""
    names, ready, files, partial = {}, selectors.DefaultSelector(), io.BytesIO(), b""
    for name, (outer, _) in pipes.items():
        os.set_blocking(outer, False)
        ready.register(outer, selectors.EVENT_READ)
        names[outer] = name
    finished, end = False, time.monotonic() + boot
    while names:
        seen = ready.select(max(0, end - time.monotonic()))
        if not seen:
            return False, b""
        # The output of a case was sent before the event of its end.
        for key, _ in sorted(seen, key=lambda one: names[one[0].fd] == "events"):
            data = os.read(key.fd, 1 << 16)
            name = names[key.fd]
            if not data:
                ready.unregister(key.fd)
                del names[key.fd]
            elif name == "files":
                files.write(data)
            elif name != "events":
                follower.output(name, data)
            else:
                *lines, partial = (partial + data).split(b"\n")
                for line in lines:
                    words = line.decode(errors="replace").split(" ")
                    if words[0] == "broken":
                        raise Trouble(f"the virtual machine has a wrong state: {' '.join(words[1:])}", "run `scripts/vm shell`, and read the errors in dmesg")
                    finished = finished or words[0] == "done"
                    end = time.monotonic() + (follower.event(words) or GRACE)
    return finished, files.getvalue()


def unpack(files, folder):
    """Extracts the returned files into `folder`; returns their names."""
    if not files:
        return []
    with tarfile.open(fileobj=io.BytesIO(files)) as archive:
        archive.extractall(folder, filter="data")
        return [member.name for member in archive if member.isfile()]


def has_kvm():
    """Returns whether the kernel lets this user create a virtual machine."""
    try:
        device = os.open("/dev/kvm", os.O_RDWR)
    except OSError:
        return False
    try:
        os.close(fcntl.ioctl(device, 0xAE01, 0))  # KVM_CREATE_VM
        return True
    except OSError:
        return False
    finally:
        os.close(device)


def _is_since_boot(path):
    try:
        with open("/proc/uptime", encoding="utf-8") as file:
            return os.stat(path).st_mtime > time.time() - float(file.read().split()[0])
    except OSError:
        return False
