//! The table of all variables.

use crate::trace::MAX_EVENTS;

/// What a variable holds and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// `1`, `yes`, `on`, `true` or `0`, `no`, `off`, `false`.
    Flag,
    /// As `Flag`, or one of these words.
    FlagOr(&'static [&'static str]),
    /// Bytes: `4096`, `64K`, `1M`, `2GiB`; powers of 1024.
    Size,
    /// Bytes, or `auto`.
    SizeOrAuto,
    /// The same from the first to the second; what lies outside counts as the nearer one, with a warning.
    SizeWithin(u64, u64),
    /// Bytes as `220`, `1K` or `1M` and nothing else, or `auto`. Empty is refused.
    BytesOrAuto,
    /// Time: `10us`, `1.5ms`, `2s`; a bare number is refused.
    DurationOrAuto,
    /// A whole number.
    Count,
    /// A whole number from the first to the second.
    CountWithin(u64, u64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any of these words, separated by commas.
    Words(&'static [&'static str]),
    /// Free text.
    Text,
}

/// One row of the table.
#[derive(Debug)]
pub struct Variable {
    /// The key the code asks by.
    pub key: Key,
    /// Its name, with the prefix.
    pub name: &'static str,
    /// What it holds.
    pub kind: ValueKind,
    /// What it is when not set, in the form a person would write it.
    pub default: &'static str,
    /// One line for the help.
    pub meaning: &'static str,
    /// Passed between our own processes: in no help, no listing, no warning.
    pub internal: bool,
}

/// The words of `FASTPATH_WAIT`.
pub const WAIT_MODES: &[&str] = &["auto", "spin", "yield", "sleep"];

/// The words of `FASTPATH_PROGRESS`.
pub const PROGRESS: &[&str] = &["none", "thread"];

/// The words of `FASTPATH_WORKERS`.
pub const WORKERS: &[&str] = &["auto", "one", "several"];

/// What `FASTPATH_DISABLE` can switch off.
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

/// Forms of `FASTPATH_REPORT` beyond on and off.
pub const REPORT_FORMS: &[&str] = &["json", "selection"];

/// Names of the transports that `FASTPATH_TRANSPORTS` can list.
pub const TRANSPORTS: &[&str] = &["all", "loopback", "shm", "cma", "rc", "ud", "tcp"];

/// Defines the keys and the table together, so that they cannot fall out of step.
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
        "how a rank waits: spin, then yield, then sleep (auto), or only one of these";
    Progress "FASTPATH_PROGRESS" ValueKind::Choice(PROGRESS), "none", false,
        "thread: a thread of the library makes progress on long messages and collective calls \
         while the program computes; none: only MPI calls do";
    Workers "FASTPATH_WORKERS" ValueKind::Choice(WORKERS), "one", false,
        "at MPI_THREAD_MULTIPLE, whether threads on different communicators have a lock and rings \
         of their own (several) or share them (one); auto: several where there are two processors \
         for each rank";
    Disable "FASTPATH_DISABLE" ValueKind::Words(FEATURES), "", false,
        "optimisations to switch off, by name, to see what each of them gives";
    Report "FASTPATH_REPORT" ValueKind::FlagOr(REPORT_FORMS), "0", false,
        "1 or json: print at start which transport and protocol serves which size, and why; at \
         the end what was learnt and counted; selection: as json, but nothing that takes time to \
         count";
    Coll "FASTPATH_COLL" ValueKind::Text, "", false,
        "algorithms of collective calls, by name, as allreduce:nodes,bcast:binomial: calls that \
         cannot use it take the usual one; any-order: sums need not have the same bits on all \
         hosts; docs/scale.md names them";
    Check "FASTPATH_CHECK" ValueKind::Flag, "0", false,
        "1: look for mistakes of the program, which takes time: datatypes that do not match, \
         collective calls that differ, requests and messages left at MPI_Finalize";
    Transports "FASTPATH_TRANSPORTS" ValueKind::Words(TRANSPORTS), "all", false,
        "transports that may be used: shm between ranks of one host; ud, and rc for pairs that \
         talk much, between hosts, and within one where shm is not listed; tcp for the same where \
         there is no adapter";
    EagerMax "FASTPATH_EAGER_MAX" ValueKind::SizeWithin(48, 64 << 10), "auto", false,
        "largest message sent without asking the receiver first, 48 to 64K; auto: by measured cost";
    PipelineChunk "FASTPATH_PIPELINE_CHUNK" ValueKind::SizeWithin(256, 32704), "auto", false,
        "piece in which a large message is copied through shared memory, 256 to 32704; auto: by \
         measured cost";
    Tuning "FASTPATH_TUNING" ValueKind::Text, "auto", false,
        "file of measured constants; auto: in the cache directory, if it is there; none: defaults";
    Device "FASTPATH_DEVICE" ValueKind::Text, "auto", false,
        "the RDMA adapter, as mlx5_0 or mlx5_0:1 for its first port; auto: the first with an \
         active port";
    MaxInline "FASTPATH_MAX_INLINE" ValueKind::BytesOrAuto, "auto", false,
        "bytes of inline data to request from an RDMA adapter; the granted size applies; auto: as \
         `fastpath tune inline` has stored, else 220";
    Interfaces "FASTPATH_INTERFACES" ValueKind::Text, "auto", false,
        "interfaces by which ranks of other hosts reach this one, the best first: names, addresses \
         or networks as 10.1.0.0/16, separated by commas; ^ before one excludes it; auto: all \
         but loopback";
    Ports "FASTPATH_PORTS" ValueKind::Text, "auto", false,
        "ports on which ranks listen, as 50000-50100, one for each rank of a host; auto: as the \
         kernel chooses";
    ConnectCost "FASTPATH_CONNECT_COST" ValueKind::DurationOrAuto, "auto", false,
        "assumed cost of a connection (queue pair): a pair changes from ud to rc once its \
         datagrams have cost that much more; auto: 500us";
    Connections "FASTPATH_CONNECTIONS" ValueKind::Count, "1024", false,
        "most connections of a rank where rc and ud are listed; further pairs stay with ud";
    Registrations "FASTPATH_REGISTRATIONS" ValueKind::SizeOrAuto, "auto", false,
        "most bytes of the program's own memory that stay registered with an adapter between \
         messages; auto: half of what a process may lock, or its share of an eighth of the memory \
         where that is less";
    UnexpectedMax "FASTPATH_UNEXPECTED_MAX" ValueKind::Size, "64M", false,
        "most bytes that unexpected messages may take in a rank; beyond that their senders wait, \
         unless the program needs a message behind them";
    Spin "FASTPATH_SPIN" ValueKind::DurationOrAuto, "auto", false,
        "how long a rank with a processor to itself spins before it yields; auto: 5us";
    Trace "FASTPATH_TRACE" ValueKind::Text, "", false,
        "file to write a trace of all ranks to, for Perfetto or chrome://tracing; empty: none";
    TraceEvents "FASTPATH_TRACE_EVENTS" ValueKind::CountWithin(1, MAX_EVENTS as _), "16384", false,
        "how many points of each thread are kept, the last ones; 1 to 1048576";
    SpawnMax "FASTPATH_SPAWN_MAX" ValueKind::Count, "128", false,
        "most spawned processes that a host of the job has at a time; the place of one that has \
         ended is reused. A job can spawn, and connect with, 32768 processes in all, or 256 times \
         this number if that is more. A place takes address space and almost no memory";
    ConnectTimeout "FASTPATH_CONNECT_TIMEOUT" ValueKind::DurationOrAuto, "180s", false,
        "how long MPI_Comm_connect waits at an open port until a process accepts; auto: without \
         end; the info key timeout, in seconds, replaces it";
    Singleton "FASTPATH_SINGLETON" ValueKind::Flag, "0", false,
        "1: this process is a job of its own, rank 0 of 1, whatever the variables of a launcher \
         say";
    CompilerC "FASTPATH_CC" ValueKind::Text, "cc", false,
        "the compiler that mpicc calls";
    CompilerCpp "FASTPATH_CXX" ValueKind::Text, "c++", false,
        "the compiler that mpicxx calls";
    InternalJob "FASTPATH_INTERNAL_JOB" ValueKind::Text, "", true,
        "set by the launcher: which rank of which job this process is";
    InternalParent "FASTPATH_INTERNAL_PARENT" ValueKind::Text, "", true,
        "set by the launcher: where the process of another job that has spawned this rank waits";
    InternalClaims "FASTPATH_INTERNAL_CLAIMS" ValueKind::Text, "/sys/devices/system/cpu", true,
        "folder of processors, whose bytes jobs lock to claim them; set by tests";
    Rank "FASTPATH_RANK" ValueKind::Text, "", true,
        "set by the launcher, for scripts: the rank";
    Size "FASTPATH_SIZE" ValueKind::Text, "", true,
        "set by the launcher, for scripts: the number of ranks";
}
