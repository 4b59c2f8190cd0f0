"""The initial RAM disk: archives in cpio's `newc` form, which the kernel unpacks one after the other."""

import hashlib
import os
import re
import stat
import subprocess

from .trouble import Trouble


class Image:
    """Files, folders and links of the machine by their path in it. A path of this machine is kept there."""

    def __init__(self, library_path=(), lighten=lambda source: source):
        """`lighten` returns the file to take instead of a program, for instance without its debug information."""
        self._lighten = lighten
        self._entries = {}  # path in the machine -> (mode, content: path here, bytes, or None)
        self._library_path = ":".join(library_path)
        self._resolved = set()

    def add_folder(self, path, mode=0o755):
        path = self._place(path)
        if path != "/" and path not in self._entries:
            self._parents(path)
            self._entries[path] = (stat.S_IFDIR | mode, None)

    def add_link(self, path, target):
        path = self._place(path)
        self._parents(path)
        self._entries[path] = (stat.S_IFLNK | 0o777, target.encode())

    def add_text(self, path, text, mode=0o644):
        path = self._place(path)
        self._parents(path)
        self._entries[path] = (stat.S_IFREG | mode, text.encode())

    def add_file(self, source, path=None):
        """Adds a file; a link and its target; a whole folder. Programs bring their shared libraries along."""
        path = self._place(path or os.path.abspath(source))
        if os.path.islink(source) and path not in self._entries:
            target = os.readlink(source)
            self.add_link(path, target)
            self.add_file(os.path.join(os.path.dirname(os.path.abspath(source)), target),
                          os.path.join(os.path.dirname(path), target))
        elif os.path.isdir(source):
            self.add_folder(path)
            for name in sorted(os.listdir(source)):
                self.add_file(os.path.join(source, name), os.path.join(path, name))
        elif os.path.isfile(source) and path not in self._entries:
            self._parents(path)
            mode, elf = os.stat(source).st_mode & 0o755, _is_elf(source)
            self._entries[path] = (stat.S_IFREG | mode, self._lighten(source) if elf else os.path.abspath(source))
            if elf:
                self._add_libraries(source)
        elif not os.path.exists(source):
            raise Trouble(f"{source} does not exist", "build the file, or pass another one")

    def _add_libraries(self, program):
        """Shared libraries that the program's loader would load; dlopen is not covered."""
        real = os.path.realpath(program)
        if real in self._resolved:
            return
        self._resolved.add(real)
        env = {**os.environ, "LD_LIBRARY_PATH": self._library_path}
        said = subprocess.run(["ldd", program], capture_output=True, text=True, env=env).stdout
        missing = re.findall(r"^\s*(\S+) => not found", said, re.MULTILINE)
        if missing:
            raise Trouble(f"{program} needs {', '.join(missing)}, which this machine lacks", "install the library, or set LD_LIBRARY_PATH")
        for library in re.findall(r"(/\S+) \(0x", said):
            self.add_file(library)

    def _place(self, path):
        """Resolves a path as the machine does: /bin and /lib are links to folders below /usr there if they are here."""
        path = os.path.normpath(path)
        top = "/".join(path.split("/")[:2])
        if top in ("/bin", "/sbin", "/lib", "/lib64") and os.path.islink(top):
            target = os.readlink(top)
            self._entries.setdefault(top, (stat.S_IFLNK | 0o777, target.encode()))
            return os.path.join("/", target) + path[len(top):]
        return path

    def _parents(self, path):
        parent = os.path.dirname(path)
        if parent != path:
            self.add_folder(parent)

    def key(self):
        """A key of the archive's contents."""
        digest = hashlib.sha256()
        for path, (mode, content) in sorted(self._entries.items()):
            if isinstance(content, str):
                seen = os.stat(content)
                content = f"{content} {seen.st_size} {seen.st_mtime_ns} {seen.st_ino}".encode()
            digest.update(f"{path}\0{mode}\0".encode() + (content or b"") + b"\0")
        return digest.hexdigest()[:16]

    def without(self, other):
        """Returns only the entries missing in `other`, for an archive to be unpacked after it."""
        made = Image()
        made._entries = {path: entry for path, entry in self._entries.items() if path not in other._entries}
        return made

    def paths(self):
        return set(self._entries)

    def write(self, path):
        """Writes the archive, completely or not at all."""
        scratch = f"{path}.{os.getpid()}"
        with open(scratch, "wb") as file:
            # Parents sort before their contents.
            for number, (name, (mode, content)) in enumerate(sorted(self._entries.items())):
                time = 0
                if isinstance(content, str):
                    # Python uses compiled files only if the source has its time of compilation.
                    time = int(os.stat(content).st_mtime)
                    with open(content, "rb") as source:
                        content = source.read()
                _write_entry(file, name.lstrip("/"), mode, number + 1, time, content or b"")
            _write_entry(file, "TRAILER!!!", 0, 0, 0, b"")
            file.write(b"\0" * (-file.tell() % 512))
        os.rename(scratch, path)


def _write_entry(file, name, mode, inode, time, content):
    name = name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    fields = [inode, mode, 0, 0, links, time, len(content), 0, 0, 0, 0, len(name), 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    file.write(head + b"\0" * (-len(head) % 4))
    file.write(content + b"\0" * (-len(content) % 4))


def _is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"
