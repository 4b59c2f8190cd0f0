//! Tools that print a value behind its name, and the units that tools write behind numbers.

use super::super::table::Unit;
use super::{
    BYTES, GB, GB_S, GBIT_S, GFLOPS, GUPS, HPCC, IPERF3, KB, KBIT_S, KIB, MB, MB_S, MBIT_S, MIB,
    MIB_S, MILLION_PER_S, MS, NETPIPE_3, NETPIPE_5, NS, PER_S, QPERF, S, US,
};

/// A value that a tool prints by name, one to a line.
pub struct Named {
    /// Its name; one `*` stands for any characters.
    pub pattern: &'static str,
    /// The unit; None: written behind each number, see [`WRITTEN`].
    pub unit: Option<Unit>,
    /// The statistic; empty: it is a setting.
    pub statistic: &'static str,
    /// Whether it is a size, a count or a setting.
    pub is_exact: bool,
}

const fn named(pattern: &'static str, unit: Unit, statistic: &'static str) -> Named {
    Named {
        pattern,
        unit: Some(unit),
        statistic,
        is_exact: false,
    }
}

const fn written(pattern: &'static str, statistic: &'static str) -> Named {
    Named {
        pattern,
        unit: None,
        statistic,
        is_exact: false,
    }
}

const fn exact(pattern: &'static str, statistic: &'static str) -> Named {
    Named {
        is_exact: true,
        ..written(pattern, statistic)
    }
}

/// The summary of `hpccoutf.txt` (HPCC 1.5.0): `src/io.c` prints it with `%g`, `src/bench_lat_bw_1.5.2.c` measures
/// the latencies and bandwidths: `Star` is the mean over the ranks while all work, `Single` one rank alone.
pub const HPCC_SUMMARY: [Named; 23] = [
    named("HPL_Tflops", Unit::new("10^12 flop/s"), "one run"),
    named("HPL_time", S, "one run"),
    named("Star*_Gflops", GFLOPS, "mean of the ranks"),
    named("Single*_Gflops", GFLOPS, "one rank"),
    named("MPIFFT_Gflops", GFLOPS, "one run"),
    named("PTRANS_GBs", GB_S, "smallest of 5 runs"),
    named("PTRANS_time", S, "one run"),
    named("MPIRandomAccess*_GUPs", GUPS, "one run"),
    named("MPIRandomAccess*_time", S, "one run"),
    named("Star*_GUPs", GUPS, "mean of the ranks"),
    named("Single*_GUPs", GUPS, "one rank"),
    named("StarSTREAM_*", GB_S, "best run, mean of the ranks"),
    named("SingleSTREAM_*", GB_S, "best run, one rank"),
    named("MaxPingPongLatency_usec", US, "slowest pair"),
    named("AvgPingPongLatency_usec", US, "mean of the pairs"),
    named("MinPingPongLatency_usec", US, "fastest pair"),
    named("MaxPingPongBandwidth_GBytes", GB_S, "fastest pair"),
    named("AvgPingPongBandwidth_GBytes", GB_S, "mean of the pairs"),
    named("MinPingPongBandwidth_GBytes", GB_S, "slowest pair"),
    named("NaturallyOrderedRingLatency_usec", US, "slowest rank"),
    named("NaturallyOrderedRingBandwidth_GBytes", GB_S, "slowest rank"),
    named(
        "RandomlyOrderedRingLatency_usec",
        US,
        "geometric mean of rings",
    ),
    named(
        "RandomlyOrderedRingBandwidth_GBytes",
        GB_S,
        "geometric mean of rings",
    ),
];

/// The end of HPCC's section LatencyBandwidth, with MB of 10^6 bytes as it says itself.
pub const HPCC_MAJOR: [Named; 5] = [
    written("Max Ping Pong Latency", "slowest pair"),
    written("Randomly Ordered Ring Latency", "geometric mean of rings"),
    written("Min Ping Pong Bandwidth", "slowest pair"),
    written("Naturally Ordered Ring Bandwidth", "slowest rank"),
    written("Randomly Ordered Ring Bandwidth", "geometric mean of rings"),
];

/// qperf 0.4.11: `calc_results`, `view_*` and `place_val` in `src/qperf.c`: powers of 1000, three digits unless `-e`
/// asks for others, zeros at the end cut off.
pub const QPERF_VALUES: [Named; 18] = [
    written("latency", "mean"),
    written("bw", "mean"),
    written("send_bw", "mean"),
    written("recv_bw", "mean"),
    written("msg_rate", "mean"),
    written("*_cost", "mean"),
    written("loc_cpus_*", "mean"),
    written("rem_cpus_*", "mean"),
    written("send_cpus_*", "mean"),
    written("recv_cpus_*", "mean"),
    written("*_real_time", "total"),
    written("*_cpu_time", "total"),
    written("*_bytes", "total"),
    exact("*_msgs", "total"),
    exact("msg_size", ""),
    exact("mtu_size", ""),
    exact("time", ""),
    exact("timeout", ""),
];

/// The line of `osu_init` behind `nprocs: 2,`: `duration` in `c/mpi/startup/osu_init.c` is cut to whole milliseconds of
/// CLOCK_REALTIME.
pub const OSU_INIT_VALUES: [Named; 3] = [
    named("min", MS, "fastest rank"),
    named("max", MS, "slowest rank"),
    named("avg", MS, "mean of the ranks, cut"),
];

/// The headings of iperf3 (3.12: `src/iperf_locale.c`), their statistic, and the words of one value, the unit included.
pub const IPERF3_COLUMNS: [(&str, &str, usize); 7] = [
    ("Transfer", "total", 2),
    ("Bitrate", "mean", 2),
    ("Retr", "total", 1),
    ("Cwnd", "last", 2),
    ("Jitter", "running mean", 2),
    ("Lost/Total Datagrams", "total", 1),
    ("Total Datagrams", "total", 1),
];

/// NetPIPE 3.7.2: `src/netpipe.c` keeps the least time of its TRIALS, each the mean over the repeats,
/// and divides bits by 1024 * 1024.
pub const NETPIPE_3_VALUES: [Named; 4] = [
    exact("size", ""),
    exact("repeats", ""),
    written("throughput", "best trial"),
    written("time", "best trial"),
];

/// NetPIPE 5: `avg_gbps` and `avg_time` in `src/netpipe.c`; `bitstring` and `timestring` divide by powers of 1000.
pub const NETPIPE_5_VALUES: [Named; 4] = [
    exact("size", ""),
    exact("repeats", ""),
    written("throughput", "mean of the trials"),
    written("time", "mean of the trials"),
];

/// Units as iperf3, qperf, HPCC and NetPIPE 5 write them behind a number. iperf3's bytes are powers of 1024 and its
/// bits of 1000 (`src/units.c`); qperf's are powers of 1000, but for KiB.
pub const WRITTEN: [(&str, &str, Unit); 54] = [
    (IPERF3, "Bytes", BYTES),
    (IPERF3, "KBytes", KIB),
    (IPERF3, "MBytes", MIB),
    (IPERF3, "GBytes", Unit::new("GiB (2^30)")),
    (IPERF3, "TBytes", Unit::new("TiB (2^40)")),
    (IPERF3, "Bytes/sec", Unit::new("B/s")),
    (IPERF3, "KBytes/sec", Unit::new("KiB/s (2^10)")),
    (IPERF3, "MBytes/sec", MIB_S),
    (IPERF3, "GBytes/sec", Unit::new("GiB/s (2^30)")),
    (IPERF3, "bits/sec", Unit::new("bit/s")),
    (IPERF3, "Kbits/sec", KBIT_S),
    (IPERF3, "Mbits/sec", MBIT_S),
    (IPERF3, "Gbits/sec", GBIT_S),
    (IPERF3, "ms", MS),
    (QPERF, "ns", NS),
    (QPERF, "us", US),
    (QPERF, "ms", MS),
    (QPERF, "sec", S),
    (QPERF, "bytes", BYTES),
    (QPERF, "KB", KB),
    (QPERF, "MB", MB),
    (QPERF, "GB", GB),
    (QPERF, "KiB", KIB),
    (QPERF, "MiB", MIB),
    (QPERF, "bytes/sec", Unit::new("B/s")),
    (QPERF, "KB/sec", Unit::new("kB/s (10^3)")),
    (QPERF, "MB/sec", MB_S),
    (QPERF, "GB/sec", GB_S),
    (QPERF, "Kb/sec", KBIT_S),
    (QPERF, "Mb/sec", MBIT_S),
    (QPERF, "Gb/sec", GBIT_S),
    (QPERF, "/sec", PER_S),
    (QPERF, "K/sec", Unit::new("10^3/s")),
    (QPERF, "M/sec", MILLION_PER_S),
    (QPERF, "% cpus", Unit::new("% of a processor")),
    (QPERF, "ms/GB", Unit::new("ms per 10^9 bytes")),
    (QPERF, "sec/GB", Unit::new("s per 10^9 bytes")),
    (HPCC, "msecs", MS),
    (HPCC, "MB/s", MB_S),
    (NETPIPE_3, "bytes", BYTES),
    (NETPIPE_3, "Mbps", Unit::new("Mibit/s (2^20)")),
    (NETPIPE_3, "usec", US),
    (NETPIPE_3, "sec", S),
    (NETPIPE_5, "B", BYTES),
    (NETPIPE_5, "KB", KB),
    (NETPIPE_5, "MB", MB),
    (NETPIPE_5, "GB", GB),
    (NETPIPE_5, "Kbps", KBIT_S),
    (NETPIPE_5, "Mbps", MBIT_S),
    (NETPIPE_5, "Gbps", GBIT_S),
    (NETPIPE_5, "nsecs", NS),
    (NETPIPE_5, "usecs", US),
    (NETPIPE_5, "msecs", MS),
    (NETPIPE_5, "secs", S),
];

/// The unit that a tool writes so.
pub fn written_unit(tool: &str, word: &str) -> Option<Unit> {
    let found = WRITTEN.iter().find(|(t, w, _)| *t == tool && *w == word);
    found.map(|(_, _, unit)| *unit)
}

/// Whether a text is the pattern, in which one `*` stands for any characters.
pub fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => {
            text.len() >= head.len() + tail.len() && text.starts_with(head) && text.ends_with(tail)
        }
    }
}
