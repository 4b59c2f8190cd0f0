//! Options that are accepted for compatibility.

use super::OptionArguments::{self, Nothing, One, Two};
use super::place::{BY_HAND, NODES};
use super::{Opt, OptionEffect, row};

const fn always(names: &'static str, takes: OptionArguments, help: &'static str) -> Opt {
    row(names, takes, OptionEffect::Always, help)
}

const fn idle(names: &'static str, takes: OptionArguments, why: &'static str) -> Opt {
    row(names, takes, OptionEffect::Idle, why)
}

/// Options that request what is always done.
pub const ALWAYS: &[Opt] = &[
    always("--allow-run-as-root", Nothing, "every user, including root, can start a job"),
    always("--byslot --bycore --bynode -rr", Nothing, "ranks on one host are numbered in order"),
    always(
        "--report-state-on-timeout --leave-session-attached -ordered-output -noconf",
        Nothing,
        "mpiexec always does what these options request",
    ),
];

const NETWORK: &str =
    "use FASTPATH_TRANSPORTS, FASTPATH_DEVICE or FASTPATH_INTERFACES to choose networks";
const PARAMETERS: &str = "Fastpath has its own settings; `fastpath info` lists them";
const RECOVERY: &str = "mpiexec restarts no rank; a program can spawn another one";
const DEBUGGER: &str =
    "use -gdb or -gtool, or start a tool as the program, such as xterm -e gdb --args PROGRAM";
const ENGINE: &str = "Fastpath has no such setting";
/// Options without effect, each with the reason that the notice prints.
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
    idle("--max-restarts --runtime-options", One("WORD"), RECOVERY),
    idle(
        "--xterm --debugger --stop-in-init --stop-in-app -gdba -gdb-args -tva",
        One("WORD"),
        DEBUGGER,
    ),
    idle(
        "-tv --debug -ilp64 -aps -mps -trace -check_mpi --stop-on-exec \
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
