//! Options that do nothing on one node.

use super::Takes::{self, Nothing, One, Two};
use super::{Does, Opt, row};

const fn always(names: &'static str, takes: Takes, help: &'static str) -> Opt {
    row(names, takes, Does::Always, help)
}

const fn idle(names: &'static str, takes: Takes, why: &'static str) -> Opt {
    row(names, takes, Does::Idle, why)
}

/// Options that ask for what is always done.
pub const ALWAYS: &[Opt] = &[
    always("--allow-run-as-root", Nothing, "every user, root included, may start a job"),
    always("--byslot --bycore --bynode -rr", Nothing, "the ranks of one node are in order"),
    always(
        "-enable-auto-cleanup --disable-recovery -cleanup",
        Nothing,
        "the end of a rank that fails ends the job",
    ),
    always(
        "--report-state-on-timeout --leave-session-attached -ordered-output -noconf",
        Nothing,
        "this is always done",
    ),
];

/// Why options that say how other nodes are reached have no effect.
pub const NODES: &str = "all ranks are started on this node";
const NETWORK: &str = "ranks of one node talk through memory";
const PARAMETERS: &str = "Fastpath has settings of its own, see `fastpath info`";
const RECOVERY: &str = "a rank that fails ends the job";
const DEBUGGER: &str =
    "tools are started as the program, as in mpiexec -n 2 xterm -e gdb --args PROGRAM";
const ENGINE: &str = "Fastpath has no such setting";
/// Why files that place single ranks have no effect.
pub const BY_HAND: &str = "--bind-to user:LIST places ranks by hand";

/// They have no effect, and one line says why.
pub const IDLE: &[Opt] = &[
    idle(
        "--mca --gmca --omca --gomca --prtemca --pmixmca --gpmixmca",
        Two("NAME", "VALUE"),
        PARAMETERS,
    ),
    idle("--am --amca --tune", One("FILE"), PARAMETERS),
    idle("-iface", One("NAME"), NETWORK),
    idle("-rdma -RDMA -ib -IB -psm2 -PSM2 -dapl -v6", Nothing, NETWORK),
    idle(
        "-bootstrap-exec-args -rmk \
         --prefix --app-pmix-prefix --pmix-prefix --launch-agent --plm -localhost \
         -rankmap -order-nodes -hosts-group -branch-count -tree-width --preload-files \
         --max-vm-size --add-host --add-hostfile --dvm -arch -file",
        One("WORD"),
        NODES,
    ),
    idle(
        "-nolocal -skip-launch-node -hybrid-hosts -disable-hostname-propagation \
         -enable-hostname-propagation --noprefix --no-app-prefix --preload-binary \
         --hetero-nodes --novm --do-not-resolve -enable-x -disable-x",
        Nothing,
        NODES,
    ),
    idle("--enable-recovery --continuous -disable-auto-cleanup -dac", Nothing, RECOVERY),
    idle("--max-restarts --with-ft --runtime-options", One("WORD"), RECOVERY),
    idle(
        "-gtool -gtoolfile --xterm --debugger --stop-in-init --stop-in-app -gdba \
         -gdb-args -tva",
        One("WORD"),
        DEBUGGER,
    ),
    idle(
        "-gdb -tv --debug -ilp64 -aps -mps -trace -check_mpi --stop-on-exec \
         --get-stack-traces",
        Nothing,
        DEBUGGER,
    ),
    idle("--rankfile -rf -cpu-bind", One("WORD"), BY_HAND),
    idle(
        "--personality -tmpdir -nameserver -demux -topolib -membind \
         -memory-alloc-kinds -gpus-per-proc -gpu-subdevs-per-proc --gpu-support \
         --report-uri --stream-buffering --forward-signals --spawn-timeout --pset \
         --ompi-server --server-wait-time",
        One("WORD"),
        ENGINE,
    ),
    idle(
        "-profile -pmi-port -prot -silent-abort --debug-daemons --debug-daemons-file \
         --debug-devel -d --show-progress --report-child-jobs-separately \
         --set-cwd-to-session-dir --xml --parsable --parseable --wait-for-server \
         --display-comm --display-comm-finalize",
        Nothing,
        ENGINE,
    ),
];
