//! The table of variables.

use crate::trace::MAX_EVENTS;

/// Kind of a variable's value, and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// `1`, `yes`, `on`, `true` or `0`, `no`, `off`, `false`.
    Flag,
    /// One of these words, or a value of `Flag`.
    FlagOr(&'static [&'static str]),
    /// Bytes: `4096`, `64K`, `1M`, `2GiB`; powers of 1024.
    Size,
    /// Bytes, or `auto`.
    SizeOrAuto,
    /// Bytes within two bounds, or `auto`. A value outside becomes the nearer bound, with a warning.
    SizeWithin(u64, u64),
    /// Bytes such as `220`, `1K` or `1M`, or `auto`. Other forms and an empty value are rejected.
    BytesOrAuto,
    /// Time: `10us`, `1.5ms`, `2s`, or `auto`. A bare number is rejected.
    DurationOrAuto,
    /// A whole number.
    Count,
    /// A whole number within two bounds, which are both allowed.
    CountWithin(u64, u64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any of these words, separated by commas.
    Words(&'static [&'static str]),
    /// Free text.
    Text,
}

/// A row of the table.
#[derive(Debug)]
pub struct Variable {
    /// Key of the variable in the code.
    pub key: Key,
    /// Name, with the prefix.
    pub name: &'static str,
    /// Kind of the value.
    pub kind: ValueKind,
    /// Default, as a user would write it.
    pub default: &'static str,
    /// Line of the help.
    pub meaning: &'static str,
    /// Whether only processes of this library set the variable, for each other. Help, lists and warnings omit such a
    /// variable.
    pub internal: bool,
}

/// Words of `FASTPATH_WAIT`.
pub const WAIT_MODES: &[&str] = &["auto", "spin", "yield", "sleep"];

/// Words of `FASTPATH_GPU`.
pub const GPU: &[&str] = &["auto", "on", "off"];

/// Words of `FASTPATH_PROGRESS`.
pub const PROGRESS: &[&str] = &["none", "thread"];

pub(super) const REMOVED: &[(&str, &str)] =
    &[("FASTPATH_WORKERS", "all threads of a rank share one worker")];

/// Optimizations that `FASTPATH_DISABLE` can switch off.
pub const FEATURES: &[&str] = &[
    "sendi",
    "recvi",
    "directed",
    "immediate-datatype",
    "cma",
    "direct",
    "pipeline",
    "prefetch",
    "demote",
    "recycle",
    "pause",
    "drain",
    "adapt",
    "resolve-once",
    "tx-gate",
    "wireup-gate",
    "oversubscription",
    "whole",
    "repeat",
    "spin-budget",
    "registrations",
    "bulk",
    "file-mapping",
    "file-thread",
    "bias",
];

/// Values of `FASTPATH_REPORT` in addition to those of a flag.
pub const REPORT_FORMS: &[&str] = &["json", "selection"];

/// Transports that `FASTPATH_TRANSPORTS` can list.
pub const TRANSPORTS: &[&str] = &["all", "loopback", "shm", "cma", "rc", "ud", "tcp"];

/// Defines the keys and the table together, in one order.
macro_rules! variables {
    ($($key:ident $name:literal $kind:expr, $default:literal, $internal:literal,
        $meaning:literal;)*) => {
        /// One key for each variable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Key { $(#[doc = $meaning] $key,)* }

        /// Every variable of the project.
        pub static VARIABLES: &[Variable] = &[$(Variable {
            key: Key::$key,
            name: $name,
            kind: $kind,
            default: $default,
            meaning: $meaning,
            internal: $internal,
        },)*];
    };
}

variables! {
    Wait "FASTPATH_WAIT" ValueKind::Choice(WAIT_MODES), "auto", false,
        "how a rank waits: auto (spin, then yield, then sleep), or only spin, yield or sleep";
    Progress "FASTPATH_PROGRESS" ValueKind::Choice(PROGRESS), "none", false,
        "thread: a thread of the library makes progress on long messages and collective calls \
         while the program computes; none: only MPI calls make progress";
    Disable "FASTPATH_DISABLE" ValueKind::Words(FEATURES), "", false,
        "optimizations to switch off, by name, to measure their effect";
    Report "FASTPATH_REPORT" ValueKind::FlagOr(REPORT_FORMS), "0", false,
        "1 or json: print the transport and protocol for each size, with reasons, at the start, \
         and learned costs and counters at the end; selection: like json, but without counters \
         that cost time";
    Coll "FASTPATH_COLL" ValueKind::Text, "", false,
        "algorithms of collective calls, by name, such as allreduce:nodes,bcast:binomial \
         (docs/scale.md lists the names). A call that cannot use the named algorithm uses its \
         default. any-order: allow algorithms with which the last bits of sums depend on the hosts \
         of the ranks";
    Topology "FASTPATH_TOPOLOGY" ValueKind::Text, "", false,
        "file with the L3 cache, NUMA node and socket of each processor of the host \
         (docs/settings.md has the format); empty: as the kernel reports them";
    Check "FASTPATH_CHECK" ValueKind::Flag, "0", false,
        "1: report mistakes of the program (slower): datatypes that do not match, collective calls \
         that differ, requests and messages left at MPI_Finalize";
    FaultTolerance "FASTPATH_FT" ValueKind::Flag, "0", false,
        "1: the job continues after ranks have died. Calls that need a dead rank return \
         MPIX_ERR_PROC_FAILED, and the functions of mpi-ext.h (ULFM) repair communicators. \
         mpiexec --with-ft ulfm sets it";
    Transports "FASTPATH_TRANSPORTS" ValueKind::Words(TRANSPORTS), "all", false,
        "allowed transports, separated by commas. Within a host: shm. Between hosts with RDMA \
         adapters: ud (datagrams), and rc (connections) for pairs of ranks that communicate much. \
         Between hosts without an adapter: tcp";
    EagerMax "FASTPATH_EAGER_MAX" ValueKind::SizeWithin(48, 64 << 10), "auto", false,
        "largest eager message, 48 to 64K; auto: chosen by measured cost";
    PipelineChunk "FASTPATH_PIPELINE_CHUNK" ValueKind::SizeWithin(256, 32704), "auto", false,
        "size of the chunks in which a large message is copied through shared memory, 256 to 32704 \
         bytes; auto: chosen by measured cost";
    Tuning "FASTPATH_TUNING" ValueKind::Text, "auto", false,
        "file of measured constants, written by `fastpath tune`; auto: the file in the cache \
         directory, if present; none: built-in constants";
    Device "FASTPATH_DEVICE" ValueKind::Text, "auto", false,
        "RDMA adapter, such as mlx5_0, or mlx5_0:1 for its first port; auto: the first adapter \
         with an active port";
    Gpu "FASTPATH_GPU" ValueKind::Choice(GPU), "auto", false,
        "whether buffers may be in the memory of a GPU: auto (if the program has loaded the GPU's \
         driver before MPI_Init, or the host has a GPU and the program can load libraries), on, or \
         off; with off, host memory is assumed";
    MaxInline "FASTPATH_MAX_INLINE" ValueKind::BytesOrAuto, "auto", false,
        "bytes of inline data to request from an RDMA adapter, which may grant another size; auto: \
         the size stored by `fastpath tune inline`, else 220";
    Interfaces "FASTPATH_INTERFACES" ValueKind::Text, "auto", false,
        "addresses at which ranks of other hosts reach this host, best first: interface names, \
         addresses or networks such as 10.1.0.0/16, separated by commas; a ^ before an entry \
         excludes that entry; auto: all but loopback";
    Ports "FASTPATH_PORTS" ValueKind::Text, "auto", false,
        "listening ports, such as 50000-50100, one for each rank of a host; auto: chosen by the \
         kernel";
    ConnectCost "FASTPATH_CONNECT_COST" ValueKind::DurationOrAuto, "auto", false,
        "assumed time to set up an rc connection (queue pair). A pair of ranks starts with ud, and \
         changes to rc when the extra time of its messages by ud, compared with rc, adds up to \
         this value; auto: 500us";
    Connections "FASTPATH_CONNECTIONS" ValueKind::Count, "1024", false,
        "maximum number of rc connections of a rank, if FASTPATH_TRANSPORTS lists rc and ud; \
         further pairs of ranks stay with ud";
    Registrations "FASTPATH_REGISTRATIONS" ValueKind::SizeOrAuto, "auto", false,
        "maximum bytes of program memory that stay registered with an adapter between messages; \
         auto: half of the locked-memory limit, but at most the rank's share of an eighth of the \
         host's memory";
    UnexpectedMax "FASTPATH_UNEXPECTED_MAX" ValueKind::Size, "64M", false,
        "maximum bytes of unexpected messages stored in a rank. At this limit senders wait, but a \
         rank that waits in MPI still receives messages, so the limit causes no deadlock";
    Spin "FASTPATH_SPIN" ValueKind::DurationOrAuto, "auto", false,
        "time that a waiting rank with a dedicated core spins before it yields the processor; \
         auto: 5us";
    Trace "FASTPATH_TRACE" ValueKind::Text, "", false,
        "file that receives a trace of all ranks, for Perfetto or chrome://tracing; empty: no \
         trace";
    TraceEvents "FASTPATH_TRACE_EVENTS" ValueKind::CountWithin(1, MAX_EVENTS as _), "16384", false,
        "number of trace points kept per thread (the most recent ones); 1 to 1048576";
    Metrics "FASTPATH_METRICS" ValueKind::Text, "", false,
        "file that receives metrics of the job at its end, in the Prometheus text format, or in \
         OpenMetrics if the name ends in .openmetrics; empty: no file";
    Profile "FASTPATH_PROFILE" ValueKind::Text, "", false,
        "1: print calls, bytes and time of MPI by call site at MPI_Finalize; a path: write \
         PATH.txt, PATH.json and PATH.html; empty or 0: no profile";
    SpawnMax "FASTPATH_SPAWN_MAX" ValueKind::Count, "128", false,
        "maximum number of running spawned processes per host of the job; after a process has \
         ended, another can be spawned. In total, a job can spawn and connect to 32768 processes, \
         or 256 times this number if the product is larger. Each possible process reserves address \
         space, but almost no memory";
    ConnectTimeout "FASTPATH_CONNECT_TIMEOUT" ValueKind::DurationOrAuto, "180s", false,
        "how long MPI_Comm_connect waits at an open port until a process accepts; auto: no limit; \
         the info key timeout, in seconds, overrides it";
    Singleton "FASTPATH_SINGLETON" ValueKind::Flag, "0", false,
        "1: this process runs alone, as rank 0 of 1; variables of a launcher are ignored";
    CompilerC "FASTPATH_CC" ValueKind::Text, "cc", false,
        "C compiler of mpicc";
    CompilerCpp "FASTPATH_CXX" ValueKind::Text, "c++", false,
        "C++ compiler of mpicxx";
    CompilerFortran "FASTPATH_FC" ValueKind::Text, "gfortran", false,
        "Fortran compiler of mpifort";
    InternalJob "FASTPATH_INTERNAL_JOB" ValueKind::Text, "", true,
        "set by the launcher: rank and job of this process";
    InternalParent "FASTPATH_INTERNAL_PARENT" ValueKind::Text, "", true,
        "set by the launcher: port of the process of another job that spawned this rank";
    InternalClaims "FASTPATH_INTERNAL_CLAIMS" ValueKind::Text, "/sys/devices/system/cpu", true,
        "folder in which jobs lock one byte per processor to claim that processor; set by tests";
    Rank "FASTPATH_RANK" ValueKind::Text, "", true,
        "set by the launcher, for scripts: the rank";
    Size "FASTPATH_SIZE" ValueKind::Text, "", true,
        "set by the launcher, for scripts: the number of ranks";
}
