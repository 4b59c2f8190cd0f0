"""Jobs on several virtual hosts, started by the launchers that people have. Needs root, for the hosts."""

import os
import re

from harness import engines, program
from harness.hosts import Hosts, missing

# Of tests/c: something of each kind.
SAMPLE = ["pt2pt_order", "pt2pt_wildcard", "coll_move", "rma_move", "sessions"]
FIRST = ["pt2pt_order", "coll_move"]


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


ENGINES = [Hydra, Prrte, SlurmPmi2, SlurmPmix]


def _run(session, engine, each, words, timeout=60):
    running = session.start(engine.on_hosts(each, words), timeout=timeout)
    running.await_end(10)
    outcome = running.finish()
    # What PRRTE says when it starts a daemon, now and then.
    lines = outcome.err.splitlines(True)
    outcome.err = "".join(line for line in lines if not re.match(r"\[h\d:\d+\] plm:ssh: Warning: setpgid", line))
    return outcome


def _meets(session, engine):
    """Ranks of two hosts are one job, each once."""
    outcome = _run(session, engine, 2, [session.binary("world")])
    wanted = [f"rank {rank} of 4" for rank in range(4)]
    if sorted(re.findall(r"rank \d of \d", outcome.out)) != wanted:
        return f"ranks: {outcome.problem() or sorted(set(outcome.out.splitlines()))}", outcome.text()
    return outcome.problem(), outcome.text()


def _programs(session, engine, names):
    for one in program.find(os.path.join(os.path.dirname(__file__), "..", "c")):
        if one.name not in names:
            continue
        session.binary(one.name)
        one.compile(session.mpicc, session.build)
        for args in one.args:
            outcome = _run(session, engine, 2, [one.binary, *args], 2 * one.timeout)
            if problem := outcome.problem(one.exit, one.quiet):
                return f"{one.name} {args}: {problem}", outcome.text()
    return None


def _ends(session, engine):
    """Wherever a rank ends, the job ends on all hosts."""
    for how in ("kill", "exit", "_exit", "abort", "error"):
        for rank in (0, 1, 3):
            outcome = _run(session, engine, 2, [session.binary("ends"), str(rank), how], timeout=20)
            # Now and then prterun and its daemons stay when the job is over and its last rank gone.
            if isinstance(engine, Prrte) and outcome.code is None and not any("/ends" in one for one in outcome.left):
                continue
            if outcome.code in (None, 0) or outcome.left:
                return f"rank {rank} ends by {how}: {outcome.problem() or 'exit code 0'}", outcome.text()
    return None


def _make(check, kind, *arguments):
    def case(session):
        name = f"hosts.{kind.__name__.lower()}"
        if reason := missing():
            session.skip(name, f"no virtual hosts: {reason}")
            return None
        with Hosts(3) as hosts:
            try:
                engine = kind(hosts)
            except OSError as error:
                session.skip(name, error)
                return None
            return check(session, engine, *arguments)
    return case


for _kind in ENGINES:
    _name = _kind.__name__.lower()
    globals()[f"case_{_name}_meets"] = _make(_meets, _kind)
    globals()[f"case_{_name}_programs"] = _make(_programs, _kind, FIRST)
    globals()[f"case_{_name}_ends"] = _make(_ends, _kind)
    _long = _make(_programs, _kind, SAMPLE)
    _long.long = True
    globals()[f"case_{_name}_sample"] = _long
