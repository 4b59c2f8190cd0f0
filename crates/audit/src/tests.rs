//! Published tables, with the numbers as printed, whose hidden properties the audit must find.

mod chance;
mod genuine;

use fastpath_report::files::read_whole;

use super::*;
use proptest::prelude::*;

/// `ib_read_lat`, ofw list, August 2009: size and t_typical.
const READ_LATENCY: &str = "
2 2.23\n128 2.23\n256 2.51\n512 2.79\n1024 3.07\n2048 3.91\n4096 4.75\n8192 6.15\n16384 8.66\n32768 14.25
65536 24.86\n131072 46.10\n262144 88.84\n524288 174.32\n1048576 345.02\n2097152 686.96\n4194304 1370.57\n8388608 2738.62\n";

/// `ndrpingpong` before and after: size, us.
const WRITES: &str = "
size usec
1 2.23\n2 2.23\n4 2.23\n8 2.23\n16 2.23\n32 2.23\n64 2.23\n128 2.23\n256 2.51\n512 2.51\n1024 3.07
2048 3.91\n4096 4.75\n8192 6.15\n16384 8.66\n32768 13.97\n65536 24.86

size usec
1 1.12\n2 1.12\n4 1.12\n8 1.12\n16 1.12\n32 1.12\n64 1.40\n128 1.40\n256 2.23\n";

/// The `ndrpingpong` table as printed by the tool: size, iterations, us, processor %, bytes per second, and no heading.
const BARE_WRITES: &str = "
        1    100000      2.23    101       447627\n        2    100000      2.23    101       895255
       64    100000      2.23    101     28648164\n      128    100000      2.23    102     57296329
      256    100000      2.51    101    101829753\n      512    100000      2.51    101    203659506
     1024    100000      3.07    103    333224861\n     2048    100000      3.91    101    523651240
     4096    100000      4.75    101    862497367\n     8192    100000      6.15    104   1332899446
    16384    100000      8.66    101   1891916859\n    32768     64000     13.97    101   2345933562
    65536     32000     24.86    101   2635884647
";

/// `ib_write_lat` of the same thread.
const WRITE_LATENCY: &str = "
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]
      2        1000           0.98           4.89             1.26
      4        1000           1.12           1.26             1.26
      8        1000           0.98           1.40             1.26
     16        1000           0.84          31.71             1.26
";

/// HPCC ping-pong, Open MPI development list, January 2009: nanoseconds, minimum and maximum.
const HPCC: &str = "437\n499\n562\n812\n874\n937\n1500\n1562\n1687\n1750\n1812\n2688\n";

/// `ib_send_bw --run_infinitely`, 2018.
const SEND_BANDWIDTH: &str = "
 #bytes     #iterations    BW average[MB/sec]   MsgRate[Mpps]
 65536      257237           3216.14              0.051458
 65536      257371           3217.8               0.051485
";

fn only_step(audit: &Audit, table: usize) -> &ClockStep {
    match &audit.tables[table].steps[..] {
        [step] => step,
        other => panic!("{other:?}"),
    }
}

/// The first clock that explains a step, and the number of operations by which it is divided.
fn clock_of(step: &ClockStep) -> (&'static str, u32) {
    let first = &step.clocks[0];
    (first.clock, first.operations)
}

const PM_TIMER: f64 = 1e9 / 3_579_545.0;

fn holds(step: &ClockStep, truth: f64) -> bool {
    (step.between.0..=step.between.1).contains(&truth)
}

#[test]
fn nd_tables__betray_the_acpi_timer() {
    // Without a heading, only a human reader knows that the numbers are microseconds.
    let found = audit(READ_LATENCY);
    assert!(holds(only_step(&found, 0), PM_TIMER / 1e3), "{found:?}");
    let found = audit(WRITES);
    for table in 0..2 {
        let step = only_step(&found, table);
        assert!(holds(step, PM_TIMER), "{step:?}");
        assert!(clock_of(step).0.contains("ACPI") && clock_of(step).1 == 1);
        assert!(step.between.1 - step.between.0 < 0.5);
    }
}

#[test]
fn nd_table_without_a_heading__betrays_its_timer_and_its_bandwidth() {
    let found = audit(BARE_WRITES);
    let step = only_step(&found, 0);
    assert!(clock_of(step).0.contains("ACPI"), "{step:?}");
    let [unit] = &found.tables[0].units[..] else {
        panic!("{:?}", found.tables[0].units);
    };
    assert_eq!((unit.bandwidth, unit.other), (4, 2), "the clock is the time's");
    let text = show_text(BARE_WRITES);
    assert!(text.contains("if the values are microseconds"), "{text}");
    assert!(!text.contains("minimum and maximum"), "{text}");
    assert!(!text.contains("between the steps"), "{text}");
}

#[test]
fn nd_gain__is_known_to_a_step_either_way() {
    let found = audit(WRITES);
    let at = |size: f64| found.comparisons.iter().find(|c| c.at == size).unwrap();
    let gain = at(8.0);
    assert!(
        (gain.between.0 + 1.39).abs() < 0.01 && (gain.between.1 + 0.83).abs() < 0.01,
        "{gain:?}"
    );
    assert!(gain.tells && !at(256.0).tells, "{:?}", at(256.0));
}

#[test]
fn write_latency__falls_on_half_steps() {
    let found = audit(WRITE_LATENCY);
    let step = only_step(&found, 0);
    assert!(holds(step, PM_TIMER / 2.0), "{step:?}");
    assert_eq!(clock_of(step).1, 2);
    assert_eq!(step.columns, [2, 3, 4]);
    assert!(!found.tables[0].statistics.join("\n").contains("between the steps"));
}

#[test]
fn hpcc__betrays_a_sixteenth_of_a_microsecond() {
    let found = audit(HPCC);
    let step = only_step(&found, 0);
    assert!(holds(step, 62.5), "{step:?}");
    assert!(clock_of(step).0.contains("microseconds") && clock_of(step).1 == 16);
    let row = show_text(HPCC);
    assert!(row.contains("one step: not enough to prove a difference"), "{row}");
}

#[test]
fn hpcc_means__do_not_hide_the_step_of_minimum_and_maximum() {
    // Columns: ranks, minimum, average, maximum.
    let text = "ranks min avg max\n2 500 507 562\n4 562 631 687\n8 812 849 937\n16 1187 1233 \
        1312\n32 1375 1540 1687\n40 1500 1742 1812\n";
    let found = audit(text);
    let step = only_step(&found, 0);
    assert!(holds(step, 62.5) && step.columns == [1, 3], "{step:?}");
    let said = found.tables[0].statistics.join("\n");
    assert!(said.contains("`avg` has values between the steps of the clock"), "{said}");
}

#[test]
fn perftest_bandwidth__is_in_mib() {
    // With the headings, the unit is known and not inferred.
    let found = audit(SEND_BANDWIDTH);
    let unit = found.tables[0].columns[2].unit.as_deref();
    assert_eq!(unit, Some("MiB/s (2^20)"), "{found:?}");
    assert!(found.tables[0].units.is_empty(), "{found:?}");
    // Without the headings, the numbers suffice to infer the unit.
    let bare: String = SEND_BANDWIDTH.lines().skip(2).map(|l| format!("{l}\n")).collect();
    let found = audit(&bare);
    let [unit] = &found.tables[0].units[..] else {
        panic!("{found:?}");
    };
    assert_eq!((unit.base, unit.bandwidth, unit.other), (units::Base::Mebi, 2, 3));
}

#[test]
fn decimal_bandwidth__is_not_called_mib() {
    // Columns: size, nanoseconds, bytes per second.
    let rows = [(1024u64, 3073u64), (2048, 3911), (4096, 4749), (65536, 24863)];
    let text: String = rows
        .iter()
        .map(|(size, ns)| format!("{size} {:.3} {}\n", *ns as f64 / 1e3, size * 1_000_000_000 / ns))
        .collect();
    let bases: Vec<_> = audit(&text).tables[0].units.iter().map(|u| u.base).collect();
    assert_eq!(bases, [units::Base::Decimal]);
}

#[test]
fn honest_numbers__have_no_tick() {
    let text = "0 110.4\n8 109.2\n64 118.7\n256 124.9\n1024 251.3\n4096 2851.8\n16384 \
        3689.1\n65536 7025.6\n262144 21616.2\n";
    let found = audit(text);
    assert!(found.tables[0].steps.is_empty() && found.tables[0].units.is_empty());
    assert!(show_text(text).contains("no tick found"));
}

fn show_text(text: &str) -> String {
    show::describe(&audit(text)).to_text()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text__is_audited_without_a_panic(text in "([0-9]{1,9}(\\.[0-9]{1,4})?[ \
        /,|\t]{1,3}|\n|us|#|[KM]|-|e9|\\PC){0,120}") {
        let found = audit(&text);
        let json = serde_json::to_string(&found).unwrap();
        prop_assert!(!json.contains("null"), "{}", json);
        show_text(&text);
    }
}

#[test]
fn perftest_in_other_columns__says_less() {
    let text = "
# latency: ping-pong, half a round trip, 2 ranks; as ib_send_lat
# perftest columns: t_typical is the median; t_max is the largest of all samples; a sample is the mean over 64 operations
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 8       1000          0.20           1.20         0.21               0.22           0.01            0.25                   0.30
";
    let [table] = &audit(text).tables[..] else {
        panic!("one table");
    };
    assert_eq!(table.tool.as_deref(), Some("Fastpath, in the columns of perftest"));
    assert!(table.columns.iter().all(|c| c.statistic.is_none()));
    assert_eq!(table.columns[3].unit.as_deref(), Some("us"));
}

#[test]
fn osu_headings_without_its_title__are_those_of_any_tool() {
    // By MB/s, another tool may mean MiB/s.
    let text = "# Size Bandwidth (MB/s)\n1 2.50\n2 5.10\n4 9.80\n";
    let found = audit(text);
    assert_eq!(found.tables[0].tool, None);
    let unit = found.tables[0].columns[1].unit.as_deref();
    assert_eq!(unit, Some("MB/s (10^6 or 2^20)"));
    // Headings in OSU's own column widths are recognised as OSU's.
    let text = "# Size      Bandwidth (MB/s)\n1                       2.50\n";
    assert_eq!(audit(text).tables[0].tool.as_deref(), Some("OSU Micro-Benchmarks"));
}

#[test]
fn imb_megabytes__follow_the_version() {
    let table = |head: &str| {
        let rows = "       #bytes #repetitions      t[usec]   Mbytes/sec\n 4096 100 2.21 1768.86\n";
        let found = audit(&format!("{head}\n{rows}"));
        found.tables[0].columns[3].unit.clone().unwrap()
    };
    assert_eq!(table("#    Intel(R) MPI Benchmarks 2021.11, MPI-1 part"), "MB/s (10^6)");
    assert_eq!(table("#    Intel (R) MPI Benchmarks 2018 Update 1, MPI-1 part"), "MB/s (10^6)");
    assert_eq!(table("#    Intel (R) MPI Benchmarks 2017, MPI-1 part"), "MiB/s (2^20)");
    assert_eq!(table("#    Intel (R) MPI Benchmark Suite V4.0.0, MPI-1 part"), "MiB/s (2^20)");
    assert_eq!(table(""), "MB/s (2^20 up to 2017, 10^6 since)");
}

#[test]
fn colours__are_no_part_of_a_number() {
    let line = "  1:       1  B        20 times --> \u{1b}[1;35m 24.177 Mbps\u{1b}[0m  in \
        \u{1b}[1;34m330.889 nsecs\u{1b}[0m";
    let found = audit(&console::strip_ansi_codes(line));
    assert_eq!(found.tables[0].tool.as_deref(), Some("NetPIPE 5"));
}

#[test]
fn long_input__is_read_whole_or_refused() {
    let rows = |n: u32| (1..=n).map(|i| format!("{i} {:.9}\n", f64::from(i) * 0.3));
    let text: String = rows(55_000).collect();
    assert!(text.len() > 1 << 20);
    assert_eq!(audit(&text).tables[0].rows, 55_000);
    assert_eq!(read_whole(&b"1 2"[..], 3).unwrap(), b"1 2");
    let refused = read_whole(&b"1 2\n"[..], 3).unwrap_err().to_string();
    assert!(refused.contains("longer than 3 bytes"), "{refused}");
}

#[test]
fn converted_units__are_no_clock() {
    let us = [44, 43, 44, 42, 41, 43, 44, 46, 52, 59, 78, 112, 137, 290, 433, 871];
    for (head, zeros, coarse) in [
        ("latency_ns", "0", "10 ns"),
        ("latency_ns", "0000", "10000 ns"),
        ("latency_us", ".00", "1 us"),
        ("value", "0", "10"),
    ] {
        let rows = us.iter().enumerate();
        let rows: String = rows.map(|(i, v)| format!("{} {v}{zeros}\n", 1u64 << i)).collect();
        let text = format!("size {head}\n{rows}");
        let found = audit(&text);
        let [table] = &found.tables[..] else {
            panic!("{found:?}");
        };
        assert!(table.steps.is_empty() && table.statistics.is_empty(), "{table:?}");
        let said = format!("`{head}`: all values are multiples of {coarse}, so they were rounded");
        let text = show_text(&text);
        assert!(text.contains(&said), "{text}");
        assert!(!text.contains("gettimeofday"), "{text}");
    }
}

#[test]
fn acpi_timer__is_seen_through_a_conversion() {
    let text = WRITES.replace("usec", "nsec").replace('.', "");
    let text: String = text
        .lines()
        .map(|l| match l.split_once(' ') {
            Some((size, time)) => format!("{size} {}0\n", time.trim_start_matches('0')),
            None => format!("{l}\n"),
        })
        .collect();
    let text = text.replace("nsec0", "nsec");
    let found = audit(&text);
    let step = only_step(&found, 0);
    assert!(holds(step, PM_TIMER), "{step:?}");
    assert!(clock_of(step).0.contains("ACPI"), "{step:?}");
    assert_eq!(found.tables[0].rounded.len(), 1);
}

#[test]
fn fuzz__pasted_tables_are_audited() {
    let corpus: &[&[u8]] = &[
        b"# OSU MPI Latency Test\n# Size Latency (us)\n0 0.25\n1 0.26\n2 0.26\n",
        b"#bytes #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]\n65536 257237 \
            3216.14 3217.8 0.051458\n",
        b"np min avg max\n2 2.688 2.719 2.750\n40 4.062 6.753 10.187\n",
    ];
    crate::mutate::run(corpus, |input| {
        audit(&String::from_utf8_lossy(input));
    });
}
