#!/usr/bin/env python3
"""A launcher for one host that supports PMI-1 only. It needs no installation, and shows the least helpful behavior of
engines. It ignores a rank that ends, unless it ends by a signal and --kill is given.

usage: pmi.py [--kill] [--slurm] [--name JOB] [--left KEY VALUE] [-n N] PROGRAM [ARGUMENT...]

  --left    a value that the job's first rank finds, as if left by a rank that has spawned it
  --kill    end the job when a rank is ended by a signal, as Hydra does
  --slurm   answer as Slurm does, where engines differ
  --name    name of the job
"""

import os
import selectors
import signal
import socket
import subprocess
import sys


class Job:
    def __init__(self, size, words, kill, slurm, name=None, left=None):
        self.size, self.kill, self.slurm = size, kill, slurm
        own = f"{os.getpid()}.0" if slurm else f"kvs_{os.getpid()}_0_{os.urandom(4).hex()}"
        self.name = name or own
        self.values, self.services, self.waiting, self.code = dict([left] if left else []), {}, [], None
        self.spawning, self.spawned = {}, []
        self.selector = selectors.DefaultSelector()
        self.ranks = []
        for rank in range(size):
            ours, theirs = socket.socketpair()
            env = dict(os.environ, PMI_FD=str(theirs.fileno()), PMI_RANK=str(rank), PMI_SIZE=str(size))
            env.pop("PMI_SPAWNED", None)
            if left:
                env["PMI_SPAWNED"] = "1"
            self.ranks.append(subprocess.Popen(words, env=env, pass_fds=[theirs.fileno()]))
            theirs.close()
            self.selector.register(ours, selectors.EVENT_READ, bytearray())

    def run(self):
        """Serves until all ranks have ended, and returns the exit code."""
        while any([rank.poll() is None for rank in self.ranks]) and self.code is None:
            for key, _ in self.selector.select(0.05):
                try:
                    data = key.fileobj.recv(4096)
                except OSError:
                    data = b""
                if not data:
                    self.selector.unregister(key.fileobj)
                    continue
                key.data.extend(data)
                while b"\n" in key.data:
                    line, _, rest = bytes(key.data).partition(b"\n")
                    key.data[:] = rest
                    self.take(key.fileobj, line.decode())
            if self.kill and any(rank.poll() is not None and rank.returncode < 0 for rank in self.ranks):
                self.code = 9
        for job in self.spawned:
            job.wait()
        if self.code is None:
            return max(128 - r.returncode if r.returncode < 0 else r.returncode for r in self.ranks)
        for rank in self.ranks:
            rank.kill()
        for rank in self.ranks:
            rank.wait()
        return self.code

    def take(self, of, line):
        """Handles a line, which is a command or one of several lines of a command."""
        if line == "mcmd=spawn":
            self.spawning[of] = {}
        elif line == "endcmd":
            self.spawn(of, self.spawning.pop(of))
        elif of in self.spawning:
            name, value = line.split("=", 1)
            self.spawning[of][name] = value
        else:
            self.answer(of, dict(w.split("=", 1) for w in line.split() if "=" in w))

    def spawn(self, to, asked):
        """Spawns one program, as a separate job."""
        words = [asked["execname"], *(asked[f"arg{i + 1}"] for i in range(int(asked["argcnt"])))]
        infos = {asked[f"info_key_{i}"]: asked[f"info_val_{i}"] for i in range(int(asked["info_num"]))}
        if self.slurm or asked["totspawns"] != "1":
            return self.say(to, "spawn_result rc=-1")
        own = [sys.executable, os.path.abspath(__file__), "--left", asked["preput_key_0"], asked["preput_val_0"]]
        self.spawned.append(subprocess.Popen([*own, "-n", asked["nprocs"], *words], cwd=infos.get("wdir")))
        return self.say(to, "spawn_result rc=0")

    def answer(self, to, asked):
        done = " msg=success" if self.slurm else " tag=0"
        command = asked.get("cmd")
        if command == "put":
            self.values[asked["key"]] = asked["value"]
            self.say(to, "put_result rc=0" + done)
        elif command == "get":
            value = self.values.get(asked["key"])
            found = f"get_result rc=0 value={value}"
            self.say(to, found if value is not None else f"get_result rc={-1 if self.slurm else 1}")
        elif command in ("publish_name", "lookup_name", "unpublish_name"):
            self.answer_name(to, command, asked)
        elif command == "barrier_in":
            self.waiting.append(to)
            if len(self.waiting) == self.size:
                for one in self.waiting:
                    self.say(one, "barrier_out" + ("" if self.slurm else " tag=0"))
                self.waiting = []
        elif command == "abort":
            self.code = int(asked["exitcode"])
        else:
            fixed = {
                "init": "response_to_init rc=0 pmi_version=1 pmi_subversion=1",
                "get_maxes": "maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024",
                "get_my_kvsname": f"my_kvsname rc=0 kvsname={self.name}",
                "get_appnum": "appnum rc=0 appnum=0",
                "get_universe_size": f"universe_size rc=0 size={self.size if self.slurm else -1}",
                "finalize": "finalize_ack rc=0",
            }
            self.say(to, fixed.get(command, f"{command} rc=-1"))

    def answer_name(self, to, command, asked):
        service, port = asked["service"], self.services.get(asked["service"])
        done = (port is None) == (command == "publish_name")
        if done and command == "publish_name":
            self.services[service] = asked["port"]
        elif done and command == "unpublish_name":
            del self.services[service]
        said = f"info={'ok' if done else 'fail'}" if self.slurm else f"rc={0 if done else 1}"
        if done and command == "lookup_name":
            said += f" port={port}"
        self.say(to, f"{command.removesuffix('_name')}_result {said}")

    @staticmethod
    def say(to, text):
        try:
            to.sendall(f"cmd={text}\n".encode())
        except OSError:
            pass  # it has ended


def main():
    words, options, size, name, left = sys.argv[1:], set(), 1, None, None
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option == "-n":
            size = int(words.pop(0))
        elif option == "--name":
            name = words.pop(0)
        elif option == "--left":
            left = (words.pop(0), words.pop(0))
        elif option in ("--kill", "--slurm"):
            options.add(option)
        else:
            sys.exit(__doc__)
    if not words:
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    job = Job(size, words, "--kill" in options, "--slurm" in options, name, left)
    try:
        return job.run()
    finally:
        for process in [*job.ranks, *job.spawned]:
            if process.poll() is None:
                process.terminate() if process in job.spawned else process.kill()


if __name__ == "__main__":
    sys.exit(main())
