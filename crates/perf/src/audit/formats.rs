//! What the tables of other tools look like, and what is known of their columns.
//!
//! One record for each form that a tool prints. What a record says was read in the source of the
//! tool, which the record names; it was seen in the outputs in `tests/data/audit`. [`recognise`]
//! reads texts by these records.
//!
//! [`recognise`]: super::recognise

mod named;

pub use named::*;

use super::table::{Role, Unit};

/// The tools by name.
pub const PERFTEST: &str = "perftest";
pub const OSU: &str = "OSU Micro-Benchmarks";
pub const IMB: &str = "Intel MPI Benchmarks";
pub const HPCC: &str = "HPCC";
pub const IPERF3: &str = "iperf3";
pub const QPERF: &str = "qperf";
pub const NETPIPE_3: &str = "NetPIPE 3";
pub const NETPIPE_5: &str = "NetPIPE 5";

/// A column that a tool prints.
pub struct Heading {
    /// Its heading without `#`, words parted by one blank; one `*` stands for any characters.
    pub text: &'static str,
    /// The unit; None: it has none, or it follows from [`Heading::text`] and the version.
    pub unit: Option<Unit>,
    /// The statistic, if the tool prints a measurement.
    pub statistic: Option<&'static str>,
    /// What the numbers are.
    pub role: Role,
    /// Whether it holds words, which are skipped.
    pub words: bool,
}

/// Something to know about the tables of a tool.
pub struct Note {
    /// The test is one of these: a part of its title; an empty text: the title is not known.
    /// No entry: any test.
    pub tests: &'static [&'static str],
    /// A column of this heading is there; empty: any columns.
    pub column: &'static str,
    /// What is known.
    pub text: &'static str,
}

/// A form of table.
pub struct Format {
    /// The tool.
    pub tool: &'static str,
    /// Every column that it may have.
    pub headings: &'static [Heading],
    /// Its line of headings holds one of these; else it is another tool's.
    pub marks: &'static [&'static str],
    /// What is known beside unit and statistic.
    pub notes: &'static [Note],
    /// What no table of it says.
    pub unknown: &'static str,
}

const NS: Unit = Unit::time("ns", 1.0);
const US: Unit = Unit::time("us", 1e3);
const MS: Unit = Unit::time("ms", 1e6);
const S: Unit = Unit::time("s", 1e9);
const BYTES: Unit = Unit::new("bytes");
const KB: Unit = Unit::new("kB (10^3)");
const MB: Unit = Unit::new("MB (10^6)");
const GB: Unit = Unit::new("GB (10^9)");
const KIB: Unit = Unit::new("KiB (2^10)");
const MIB: Unit = Unit::new("MiB (2^20)");
const PERCENT: Unit = Unit::new("%");
const MB_S: Unit = Unit::new("MB/s (10^6)");
const MIB_S: Unit = Unit::new("MiB/s (2^20)");
const GB_S: Unit = Unit::new("GB/s (10^9)");
const KBIT_S: Unit = Unit::new("kbit/s (10^3)");
const MBIT_S: Unit = Unit::new("Mbit/s (10^6)");
const GBIT_S: Unit = Unit::new("Gbit/s (10^9)");
const PER_S: Unit = Unit::new("1/s");
const MILLION_PER_S: Unit = Unit::new("10^6/s");
const GFLOPS: Unit = Unit::new("10^9 flop/s");
const GUPS: Unit = Unit::new("10^9 updates/s");

const fn column(text: &'static str, unit: Option<Unit>, role: Role) -> Heading {
    Heading {
        text,
        unit,
        statistic: None,
        role,
        words: false,
    }
}

const fn size(text: &'static str) -> Heading {
    column(text, Some(BYTES), Role::Parameter)
}

const fn count(text: &'static str) -> Heading {
    column(text, None, Role::Parameter)
}

const fn words(text: &'static str) -> Heading {
    Heading {
        words: true,
        ..column(text, None, Role::Parameter)
    }
}

const fn measured(text: &'static str, unit: Unit, statistic: &'static str) -> Heading {
    Heading {
        statistic: Some(statistic),
        ..column(text, Some(unit), Role::Measured)
    }
}

const fn derived(text: &'static str, unit: Unit, statistic: &'static str) -> Heading {
    Heading {
        role: Role::Derived,
        ..measured(text, unit, statistic)
    }
}

const fn note_if(tests: &'static [&'static str], column: &'static str, text: &'static str) -> Note {
    Note {
        tests,
        column,
        text,
    }
}

/// Tools whose tables have a line of headings above their rows.
pub const FORMATS: [Format; 5] = [
    PERFTEST_2009,
    PERFTEST_TABLE,
    OSU_TABLE,
    IMB_TABLE,
    HPCC_TABLE,
];

/// The latencies of perftest before 2015: `print_report` in `write_lat.c` of perftest 1.3. All samples count.
const PERFTEST_2009: Format = Format {
    tool: PERFTEST,
    headings: &[
        size("bytes"),
        count("iterations"),
        measured("t_min[usec]", US, "minimum"),
        measured("t_max[usec]", US, "maximum"),
        measured("t_typical[usec]", US, "median"),
    ],
    marks: &["t_typical[usec]"],
    notes: PERFTEST_TABLE.notes,
    unknown: PERFTEST_TABLE.unknown,
};

/// perftest 4.5 and 25.04: `RESULT_FMT*` in `src/perftest_parameters.h`; what the columns are:
/// `print_report_lat`, `print_report_lat_duration`, `print_full_bw_report` in
/// `src/perftest_parameters.c`. A megabyte is 0x100000 bytes there; since March 2024 it is written
/// `MiB`.
const PERFTEST_TABLE: Format = Format {
    tool: PERFTEST,
    headings: &[
        size("bytes"),
        count("iterations"),
        count("sl"),
        measured("t_min[usec]", US, "minimum"),
        measured("t_max[usec]", US, "second largest sample"),
        measured("t_typical[usec]", US, "median"),
        measured("t_avg[usec]", US, "mean"),
        derived("t_stdev[usec]", US, "standard deviation"),
        measured("99% percentile[usec]", US, "99th percentile"),
        measured("99.9% percentile[usec]", US, "99.9th percentile"),
        measured("tps average", PER_S, "mean"),
        measured("BW peak[MB/sec]", MIB_S, "best stretch"),
        measured("BW peak[MiB/sec]", MIB_S, "best stretch"),
        measured("BW peak[Gb/sec]", GBIT_S, "best stretch"),
        measured("BW average[MB/sec]", MIB_S, "mean"),
        measured("BW average[MiB/sec]", MIB_S, "mean"),
        measured("BW average[Gb/sec]", GBIT_S, "mean"),
        measured("MsgRate[Mpps]", MILLION_PER_S, "mean"),
        measured("BW Port*[MB/sec]", MIB_S, "mean"),
        measured("BW Port*[MiB/sec]", MIB_S, "mean"),
        measured("BW Port*[Gb/sec]", GBIT_S, "mean"),
        measured("MsgRate Port*[Mpps]", MILLION_PER_S, "mean"),
        derived("CPU_Util[%]", PERCENT, "mean"),
        count(","),
        measured("usec", US, "single samples"),
    ],
    marks: &["t_typical[usec]", "tps average", "MsgRate[Mpps]", "usec"],
    notes: &[
        note_if(&["Send", "Write"], "usec", "a time is half a round trip"),
        note_if(&["Read", "Atomic"], "usec", "a time is a whole round trip"),
        note_if(
            &[""],
            "usec",
            "a time is half a round trip for send and write, a whole one for read and atomic",
        ),
        note_if(
            &[],
            "t_stdev[usec]",
            "since 2017 the largest sample is in no column; median, mean and deviation leave out the second largest too",
        ),
        note_if(
            &[],
            "t_stdev[usec]",
            "t_stdev is computed from differences cut to whole us; their squares may overflow, and -nan is printed",
        ),
        note_if(&[], "MB/sec", "perftest divides by 2^20 and writes MB"),
        note_if(
            &["Bidirectional"],
            "BW",
            "the sum of both directions, each measured by its own end",
        ),
        note_if(
            &[],
            "BW peak",
            "the peak is the fastest stretch between any post and any completion; 0.00: not measured",
        ),
    ],
    unknown: "whether its clock runs at the frequency that perftest took for it (it may be 2 % off)",
};

/// OSU Micro-Benchmarks 5.3, 7.1 and 7.4: `print_header*`, `print_only_header*` in `c/util/osu_util_mpi.c`; what is
/// computed: `c/mpi/pt2pt/standard/osu_latency.c`, `osu_bw.c`, `osu_mbw_mr.c` (`size / 1e6`), and
/// `calculate_and_print_stats`. From 7.1 to 7.3 `# Datatype:` stands below the headings of some tests.
const OSU_TABLE: Format = Format {
    tool: OSU,
    headings: &[
        size("Size"),
        count("Iterations"),
        size("Transmit Size"),
        words("Validation"),
        measured("Latency (us)", US, "mean"),
        measured("Avg Latency(us)", US, "mean"),
        measured("Min Latency(us)", US, "smallest rank's mean"),
        measured("Max Latency(us)", US, "largest rank's mean"),
        measured("P* Tail Lat(us)", US, "percentile"),
        measured("Bandwidth (MB/s)", MB_S, "mean"),
        measured("MB/s", MB_S, "mean"),
        measured("Messages/s", PER_S, "mean"),
        measured("P* Tail BW(MB/s)", MB_S, "percentile"),
        measured("Overall(us)", US, "mean"),
        measured("Compute(us)", US, "mean"),
        measured("Coll. Init(us)", US, "mean"),
        measured("MPI_Test(us)", US, "mean"),
        measured("MPI_Wait(us)", US, "mean"),
        measured("Pure Comm.(us)", US, "mean"),
        measured("Min Comm.(us)", US, "smallest rank's mean"),
        measured("Max Comm.(us)", US, "largest rank's mean"),
        derived("Overlap(%)", PERCENT, "of the means"),
    ],
    marks: &["Size", "Avg Latency(us)", "Overall(us)"],
    notes: &[
        note_if(
            &[
                "MPI Latency",
                "MPI Multi Latency",
                "Multi-threaded",
                "Multi-process",
            ],
            "",
            "a time is half a round trip, the mean over the iterations after the warm-up",
        ),
        note_if(
            &["MPI_"],
            "(us)",
            "a time is one operation with its synchronization, the mean over the iterations after the warm-up",
        ),
        note_if(
            &[""],
            "Latency",
            "the mean over the iterations after the warm-up",
        ),
        note_if(
            &[],
            "Min Latency(us)",
            "Avg, Min and Max are over the ranks; each rank's time is its mean",
        ),
        note_if(
            &[],
            "Overall(us)",
            "Overall = Coll. Init + Compute + MPI_Test + MPI_Wait, each the mean over the iterations and the ranks",
        ),
        note_if(&["Bi-"], "", "the sum of both directions"),
        note_if(
            &[
                "MPI Bandwidth",
                "MPI Bi-Directional",
                "MPI Multiple Bandwidth",
            ],
            "MB/s",
            "messages go in windows (64 of them unless -W says otherwise), each answered once",
        ),
        note_if(&[], "MB/s", "MB is 10^6 bytes"),
    ],
    unknown: "the step of MPI_Wtime; the spread of the samples where no percentile is printed",
};

/// Intel MPI Benchmarks 4.0, 2017, 2018 to 2021.11: `IMB_print_header`, `IMB_display_times` in `IMB_output.c`,
/// `src_c/P2P/imb_p2p_pingpong.c`. `Mbytes/sec`: 2^20 bytes up to 2017, 10^6 since 2018 (`MEGA`): see
/// [`imb_megabytes`].
const IMB_TABLE: Format = Format {
    tool: IMB,
    headings: &[
        count("Group"),
        size("bytes"),
        count("repetitions"),
        measured("t[usec]", US, "mean"),
        measured("t_min[usec]", US, "smallest rank's mean"),
        measured("t_max[usec]", US, "largest rank's mean"),
        measured("t_avg[usec]", US, "mean"),
        measured("t_ovrl[usec]", US, "largest rank's mean"),
        measured("t_pure[usec]", US, "largest rank's mean"),
        measured("t_CPU[usec]", US, "largest rank's mean"),
        derived("overlap[%]", PERCENT, "of the means"),
        Heading {
            statistic: Some("mean"),
            ..column("Mbytes/sec", None, Role::Measured)
        },
        measured("Msg/sec", PER_S, "mean"),
        count("defects"),
    ],
    marks: &["repetitions"],
    notes: &[
        note_if(&["PingPong"], "usec", "a time is half a round trip"),
        note_if(
            &[],
            "usec",
            "a time is the mean over the repetitions; min, max and avg are over the ranks",
        ),
        note_if(
            &["Sendrecv", "Exchange", "Biband"],
            "Mbytes/sec",
            "Mbytes/sec counts the bytes of all directions",
        ),
    ],
    unknown: "the step of MPI_Wtime; the spread of the repetitions",
};

/// The unit of IMB's `Mbytes/sec` by its version, `V4.0.0`, `4.1`, `2017` or `2021.11`; unsettled where the text gives
/// no version.
pub fn imb_megabytes(version: Option<&str>) -> Unit {
    let major = version.map(|v| v.trim_start_matches('V').split('.').next().unwrap_or(""));
    match major.and_then(|m| m.parse::<u32>().ok()) {
        Some(major) if major >= 2018 => MB_S,
        Some(_) => MIB_S,
        None => Unit {
            settled: false,
            ..Unit::new("MB/s (2^20 up to 2017, 10^6 since)")
        },
    }
}

/// HPCC 1.5.0, the tables of its HPL, PTRANS and STREAM: `PTRANS/pdtransdriver.c`, `STREAM/stream.c`.
const HPCC_TABLE: Format = Format {
    tool: HPCC,
    headings: &[
        words("T/V"),
        words("TIME"),
        measured("TIME", S, "one run"),
        words("CHECK"),
        words("Function"),
        count("N"),
        count("M"),
        count("NB"),
        count("MB"),
        count("P"),
        count("Q"),
        measured("Time", S, "one run"),
        measured("Gflops", GFLOPS, "one run"),
        measured("GB/s", GB_S, "smallest so far"),
        derived("RESID", Unit::new("-"), "one run"),
        measured("Rate (GB/s)", GB_S, "best run"),
        measured("Avg time", S, "mean"),
        measured("Min time", S, "minimum"),
        measured("Max time", S, "maximum"),
    ],
    marks: &["Gflops", "RESID", "Rate (GB/s)"],
    notes: &[
        note_if(
            &[],
            "RESID",
            "GB/s of a WALL row is the smallest of the rows down to it; of a CPU row it is its own",
        ),
        note_if(&[], "Rate (GB/s)", "over all runs but the first"),
    ],
    unknown: "the step of the clock; the spread",
};
