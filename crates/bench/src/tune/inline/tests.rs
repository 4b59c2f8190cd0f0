use fastpath_report::record::interval::Ratio;
use fastpath_report::testing::parse_options;

use super::*;
use queue::{KnownBy, QueueSize};

fn identity(driver: &str, part: &str) -> DeviceIdentity {
    DeviceIdentity {
        name: "mlx5_0".to_owned(),
        part: part.to_owned(),
        firmware: "16.35.3006".to_owned(),
        driver: driver.to_owned(),
        software: driver.starts_with("software"),
    }
}

fn options(words: &[&str]) -> InlineOptions {
    parse_options(words).unwrap()
}

#[test]
fn sizes__have_the_units_of_every_other_command() {
    let options = options(&["--sizes", "8,1K", "--most", "2K"]);
    assert_eq!((options.sizes, options.most), (vec![8, 1024], 2048));
    for wrong in ["1X", "-1", ""] {
        assert!(parse_options::<InlineOptions>(&["--sizes", wrong]).is_err(), "{wrong}");
    }
}

fn cost(asked: u32, granted: u32) -> InlineCost {
    InlineCost {
        asked,
        granted,
        depth: 128,
        queue: Some(QueueSize { bytes: 128 * 256, known_by: KnownBy::Mapping }),
    }
}

fn finding(limit: Option<u32>, known: bool) -> Finding {
    Finding { known, limit, all: false, interval: [limit, Some(256)], confidence: 0.875 }
}

#[test]
fn sizes__are_powers_of_two_and_the_borders_of_what_is_granted() {
    let queues = [cost(0, 28), cost(1, 28), cost(64, 88), cost(100, 100)];
    let found = choose_sizes(&options(&[]), 100, &queues).unwrap();
    assert_eq!(found, [1, 2, 4, 8, 16, 28, 29, 32, 64, 88, 89, 100]);
    let none = choose_sizes(&options(&[]), 0, &[cost(0, 0)]).unwrap();
    assert!(none.is_empty(), "{none:?}");
}

#[test]
fn sizes__of_the_user_are_taken_or_refused_with_the_reason() {
    let choose = |words: &[&str]| {
        let chosen = choose_sizes(&options(words), 100, &[]);
        chosen.map_err(|e| e.to_string())
    };
    assert_eq!(choose(&["--sizes", "64,0,8,64"]), Ok(vec![0, 8, 64]));
    for (words, why) in [
        (&["--sizes", "101"][..], "the largest size that can be measured is 100 bytes"),
        (&["--sizes", "0,8", "--verb", "write"], "at least 1 byte"),
        (
            &["--rounds", "4"],
            "--rounds 4 is too small to compute a confidence interval; use 5 or more",
        ),
    ] {
        let error = choose(words).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn powers__hold_the_largest_itself() {
    assert_eq!(sweep::list_powers(0), [0]);
    assert_eq!(sweep::list_powers(1), [0, 1]);
    assert_eq!(sweep::list_powers(8), [0, 1, 2, 4, 8]);
    assert_eq!(sweep::list_powers(9), [0, 1, 2, 4, 8, 9]);
}

#[test]
fn orders__have_every_size_once_and_both_ways_in_two_rounds() {
    let mut orders = sweep::Orders::new(11);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let mut two = [orders.next_round(), orders.next_round()];
        seen.insert(two[0].clone());
        two.iter_mut().for_each(|round| round.sort_unstable());
        let both = two[0].iter().zip(&two[1]);
        for (size, (one, other)) in both.enumerate() {
            assert_eq!((one.0, other.0), (size, size));
            assert_ne!(one.1, other.1, "the same way begins");
        }
    }
    assert_eq!(seen.len(), 20, "the same orders again");
}

#[test]
fn model__of_a_known_adapter_differs_by_host() {
    let models = predict(&identity("mlx5_core 6.1", "0x2c9:4119"), VerbName::Write, 220);
    assert_eq!(models.len(), 3);
    assert!(models.iter().all(|m| m.adapter == "ConnectX-4 to ConnectX-6"));
    let limits: Vec<Option<u32>> = models.iter().map(|m| m.limit).collect();
    assert_ne!(limits[1], limits[2], "{models:?}");
    let newest = predict(&identity("mlx5_core 6.1", "0x2c9:4129"), VerbName::Send, 220);
    assert_eq!(newest[0].adapter, "ConnectX-7");
    let software = predict(&identity("software 6.1", "0xffffff:0"), VerbName::Send, 1024);
    assert_eq!(software.len(), 3);
    assert!(software.iter().all(|m| m.asked == 220));
}

fn report(found: Finding) -> InlineReport {
    InlineReport {
        device: "rxe0".to_owned(),
        port: 1,
        part: "0xffffff:0".to_owned(),
        firmware: "none".to_owned(),
        driver: "software 6.1".to_owned(),
        software: true,
        verb: VerbName::Send,
        rounds: 31,
        largest_granted: 512,
        cases: vec![SweepPoint {
            bytes: 8,
            inline_ns: 900.0,
            dma_ns: 1000.0,
            ratio: Some(Ratio { ratio: 0.9, interval: Some([0.88, 0.92]) }),
        }],
        crossover: Some(found),
        queues: vec![cost(64, 64)],
        models: predict(&identity("software 6.1", "0xffffff:0"), VerbName::Send, 512),
        stored_in: Some("/c/inline-rxe0".into()),
        stored_bytes: Some(64),
        not_stored: None,
    }
}

#[test]
fn report__says_crossover_confidence_memory_and_place() {
    let text = show::describe(&report(finding(Some(64), true))).to_text();
    for part in [
        "a software adapter",
        "0.9000 0.8800 to 0.9200 faster",
        "inline data is faster up to 64 bytes; 95 % interval 64 bytes to 256 bytes; 88 % of \
         resamples of the rounds give the same result",
        "256        32768  mapping",
        "ConnectX-4 to ConnectX-6 in a server of 2016",
        "stored in /c/inline-rxe0: jobs will request 64 bytes",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let json = serde_json::to_value(report(finding(None, true))).unwrap();
    assert_eq!(json["crossover"]["limit"], serde_json::Value::Null);
    assert_eq!(json["queues"][0]["queue"]["known_by"], "mapping");
    let unsure = report(finding(Some(64), false));
    let said = show::say_crossover(unsure.crossover.as_ref().unwrap(), &unsure);
    assert!(said.contains("crossover unknown"), "{said}");
}

#[test]
fn keep__stores_what_is_known_alone() {
    let folder = std::env::temp_dir().join(format!("fastpath-keep-{}", std::process::id()));
    let file = folder.join("tuning").into_os_string();
    let config = Config::from_pairs([("FASTPATH_TUNING".into(), file)]).unwrap();
    let identity = identity("mlx5_core 6.1", "0x2c9:4119");
    let keep =
        |words: &[&str], found: Option<&Finding>| keep(&options(words), &config, &identity, found);
    for (words, found, why) in [
        (&[][..], None, "grants no inline data"),
        (&[], Some(finding(Some(64), false)), "do not show the size"),
        (&["--dry-run"], Some(finding(Some(64), true)), "--dry-run"),
    ] {
        let error = keep(words, found.as_ref()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(!folder.exists());
    }
    for (limit, bytes) in [(Some(64), 64), (None, 0)] {
        let path = folder.join("tuning.mlx5_0");
        let kept = keep(&[], Some(&finding(limit, true)));
        assert_eq!(kept.unwrap(), (path, bytes));
        let stored = stored::StoredInline::of(&config);
        assert_eq!(stored.find(&identity), Some(bytes));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
