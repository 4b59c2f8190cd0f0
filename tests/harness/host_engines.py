"""Ways to start a job on several hosts: by an engine, or by our mpiexec, which starts its agents with an engine."""

import contextlib
import os

from harness import engines, foreign
from harness.hosts import Hosts, missing


class Hydra(engines.Hydra):
    def __init__(self, hosts):
        super().__init__()
        self.hosts = hosts

    def on_hosts(self, each, words):
        return self.start_on(self.hosts, self.hosts.names[1:], each, words)


class Prrte(engines.Prrte):
    def __init__(self, hosts):
        super().__init__()
        self.hosts = hosts

    def on_hosts(self, each, words):
        return self.start_on(self.hosts, self.hosts.names[1:], each, words)


class SlurmPmi2(engines.Slurm):
    name, mpi = "slurm-pmi2", "pmi2"

    def on_hosts(self, each, words):
        nodes = len(self.hosts.names) - 1
        return self.start_on(self.mpi, nodes, nodes * each, words, [f"--ntasks-per-node={each}", "--overcommit"])


class SlurmPmix(SlurmPmi2):
    name, mpi = "slurm-pmix", "pmix"


class Agents:
    """Our mpiexec, which starts an agent on each host with an engine."""
    prefix = None  # installation folder of the engine
    daemon = None  # process that the engine starts for a job and depends on

    def mpiexec(self, engine, each, options, words):
        places = ",".join(f"{name}:{each}" for name in self.hosts.names[1:])
        return [os.path.join(self.prefix, "bin", "mpiexec"), "--engine", engine, *options, "--host", places, *words]


class AgentsHydra(Agents):
    name, daemon = "agents-hydra", "hydra_pmi_proxy"

    def __init__(self, hosts):
        self.hosts, self.folder = hosts, os.path.dirname(engines.Hydra().mpiexec)

    def on_hosts(self, each, words):
        options = ["-launcher", "ssh", "-launcher-exec", self.hosts.rsh]
        command = self.mpiexec("hydra", each, options, words)
        return self.hosts.beside("h0", ["env", f"PATH={self.folder}:{os.environ['PATH']}", *command])


class AgentsPrrte(Agents):
    name, daemon = "agents-prrte", "prted"

    def __init__(self, hosts):
        self.hosts, self.prrte = hosts, engines.Prrte()

    def on_hosts(self, each, words):
        moved = [*self.prrte.moved(), f"PRTE_MCA_plm_ssh_agent={self.hosts.rsh}",
                 "PRTE_MCA_plm_ssh_no_tree_spawn=1"]
        path = f"PATH={self.prrte.place}/bin:{os.environ['PATH']}"
        return self.hosts.beside("h0", ["env", *moved, path, *self.mpiexec("prrte", each, [], words)])


class AgentsSlurm(engines.Slurm, Agents):
    # Slurm's daemons serve later jobs too, so the process to kill is srun.
    name, daemon = "agents-slurm", "srun"

    def on_hosts(self, each, words):
        command = self.mpiexec("slurm", each, [], words)
        return self.hosts.on("h0", ["env", f"SLURM_CONF={self.conf}", *command])


ENGINES = [Hydra, Prrte, SlurmPmi2, SlurmPmix, AgentsHydra, AgentsPrrte, AgentsSlurm]


def run(session, engine, each, words, timeout=60, options=(), **more):
    """`options` are options of our mpiexec."""
    command = engine.on_hosts(each, words)
    if options:
        at = command.index("--host")
        command[at:at] = options
    return run_words(session, command, timeout, **more)


def run_words(session, command, timeout=60, **more):
    running = session.start(command, timeout=timeout, **more)
    running.await_end(10)
    outcome = running.finish()
    outcome.err = foreign.remove(outcome.err)
    return outcome


@contextlib.contextmanager
def three_hosts(session):
    """Three virtual hosts, and our mpiexec with Hydra as its engine on the first one."""
    with Hosts(3) as hosts:
        way = AgentsHydra(hosts)
        way.prefix = session.prefix
        yield hosts, way


def lacks_hosts():
    """Returns why virtual hosts with Hydra are not possible on this machine, or None."""
    if reason := missing():
        return f"virtual hosts are not possible: {reason}"
    try:
        engines.Hydra()
    except OSError as error:
        return error
    return None
