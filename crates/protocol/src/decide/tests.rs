use super::*;
use crate::report::{SelectionClass, SelectionReport};
use crate::selection::constants::FIELDS;
use crate::wire::{EAGER_LIMIT, EARLY_LIMIT, SHORT_LIMIT};
use fastpath_base::config::Config;
use fastpath_transport::setup::peers::foresee_outside;
use fastpath_transport::single_copy::SingleCopyCost;
use proptest::prelude::*;

const FREE: Overrides = Overrides {
    eager_max: None,
    serves: false,
    chunk: None,
    direct: true,
    pipeline: true,
    adapt: true,
    whole: true,
};

/// [`FREE`], but without learning.
const FIXED: Overrides = Overrides { adapt: false, ..FREE };

fn overrides() -> impl Strategy<Value = Overrides> {
    let size =
        || prop_oneof![Just(None), any::<u64>().prop_map(Some), (0_u64..100_000).prop_map(Some)];
    (size(), size(), any::<[bool; 5]>()).prop_map(
        |(eager_max, chunk, [serves, direct, pipeline, adapt, whole])| Overrides {
            eager_max,
            serves,
            chunk,
            direct,
            pipeline,
            adapt,
            whole,
        },
    )
}

/// Generates any plausible constants, evenly distributed by magnitude.
fn any_constants() -> impl Strategy<Value = Constants> {
    prop::collection::vec(0.0..1.0_f64, FIELDS.len()).prop_map(|at| {
        let mut constants = Constants::default();
        for (field, at) in FIELDS.iter().zip(at) {
            let least = field.least.max(1e-3);
            (field.set)(&mut constants, least * (field.most / least).powf(at));
        }
        constants
    })
}

/// Generates constants of machines similar to the existing ones.
fn likely_constants() -> impl Strategy<Value = Constants> {
    prop::collection::vec(-1.0..1.0_f64, FIELDS.len()).prop_map(|at| {
        let mut constants = Constants::default();
        for (field, at) in FIELDS.iter().zip(at) {
            let usual = (field.get)(&constants);
            (field.set)(&mut constants, usual * 4.0_f64.powf(at));
        }
        constants
    })
}

/// Returns the protocol that the thresholds choose, for private memory or memory that both sides reach.
fn chosen(t: &Thresholds, shared: bool, size: u64) -> Protocol {
    let copy = t.copy_from(shared);
    let both = if shared { t.cooperative } else { copy };
    match size {
        _ if size <= SHORT_LIMIT as u64 => Protocol::Short,
        _ if size <= t.eager => Protocol::Eager,
        _ if size >= copy && size >= both => Protocol::Cooperative,
        _ if size >= copy => Protocol::Get,
        _ if size <= t.first => Protocol::Fragments,
        _ => Protocol::Pipelined,
    }
}

fn cost(curves: &[Curve], protocol: Protocol, size: u64) -> Option<f64> {
    curves[protocol as usize].at(size)
}

/// Returns the sizes of the thresholds, their neighbours, and some sizes between.
fn sizes(t: &Thresholds) -> Vec<u64> {
    let borders =
        [SHORT_LIMIT as u64, t.eager, t.fragment, t.first, t.single_copy, t.direct, t.cooperative];
    let borders = borders.into_iter().filter(|&b| b < 1 << 32);
    let mut sizes: Vec<u64> = borders.flat_map(|b| [b.saturating_sub(1), b, b + 1]).collect();
    sizes.extend((0..60).map(|i| 1.41_f64.powi(i) as u64));
    sizes
}

#[test]
fn defaults__give_the_thresholds_of_a_process_that_measures_nothing() {
    assert_eq!(decide(&Constants::default(), &FREE, true), Thresholds::default());
}

#[test]
fn defaults__step_by_no_more_than_a_quarter() {
    let c = Constants::default();
    let t = decide(&c, &FREE, true);
    for shared in [false, true] {
        let curves = curves(&c, &t, shared);
        for size in sizes(&t) {
            let at = |size| cost(&curves, chosen(&t, shared, size), size).unwrap();
            let step = at(size + 1) / at(size);
            // A payload of more than 48 bytes is in the data area, so the receiver waits for a second cache line.
            let most = if size == SHORT_LIMIT as u64 { 1.5 } else { 1.25 };
            assert!(step <= most, "{size}: {step}, shared {shared}");
        }
    }
}

#[test]
fn kernel__that_refuses_leaves_everything_else_as_it_was() {
    let c = Constants::default();
    let with = decide(&c, &FREE, true);
    let without = decide(&c, &FREE, false);
    assert_eq!(without, Thresholds { single_copy: u64::MAX, crowded_copy: u64::MAX, ..with });
}

#[test]
fn kernel__that_is_slow_is_not_asked() {
    // Constants of a sandbox that emulates the call: 20 us, and 1 us for each page.
    let c = Constants { kernel_call_ns: 20_000.0, kernel_byte_ns: 0.25, ..Constants::default() };
    assert_eq!(decide(&c, &FIXED, true).single_copy, u64::MAX);
}

#[test]
fn kernel__that_is_fast_is_asked_earlier() {
    let c = Constants { kernel_call_ns: 150.0, kernel_byte_ns: 0.005, ..Constants::default() };
    // Set a smaller eager limit, because eager bytes are not sent by single copies.
    let early = Overrides { eager_max: Some(32 << 10), ..FIXED };
    let t = decide(&c, &early, true);
    let usual = decide(&Constants::default(), &early, true);
    assert!(t.single_copy < usual.single_copy, "{t:?}");
    assert_eq!(t.piece_min, 8192);
}

#[test]
fn eager_max__is_kept_between_a_slot_and_what_may_travel_eagerly() {
    let first = |most| {
        decide(&Constants::default(), &Overrides { eager_max: Some(most), ..FREE }, true).first
    };
    assert_eq!([0, 1024, 1 << 20].map(first), [48, 1024, EARLY_LIMIT]);
}

#[test]
fn eager_limit__leaves_long_messages_to_a_progress_thread() {
    let limit = |overrides: Overrides| overrides.eager_limit();
    let beside = Overrides { serves: true, ..FREE };
    assert_eq!([FREE, beside].map(limit), [EARLY_LIMIT, 32 << 10]);
    assert_eq!(limit(Overrides { eager_max: Some(48_000), ..beside }), 48_000, "as the user says");
}

#[test]
fn whole__without_requested_parts__is_the_eager_limit() {
    let whole = |overrides| decide(&Constants::default(), &overrides, true).max_single;
    let (chunk, eager_max) = (Some(1024), Some(10_000));
    assert_eq!(whole(FREE), EAGER_LIMIT as u64);
    assert_eq!(whole(Overrides { eager_max, ..FREE }), 10_000);
    assert_eq!(whole(Overrides { chunk, ..FREE }), 0);
    let (pipeline, off) = (false, false);
    assert_eq!(whole(Overrides { pipeline, ..FREE }), 0);
    assert_eq!(whole(Overrides { whole: off, ..FREE }), 0);
}

#[test]
fn single_copy__is_not_the_beginning_of_who_learns() {
    let at = |overrides| decide(&Constants::default(), &overrides, true).single_copy;
    assert_eq!([FIXED, FREE].map(at), [96 << 10, u64::MAX]);
}

#[test]
fn round_size__keeps_to_its_row_and_near() {
    assert_eq!(
        [0, 48, 63, 64, 4096, 5100, 29_000, 32_768, 41_000].map(round_size),
        [0, 48, 63, 64, 4096, 6144, 32_768, 32_768, 49_152]
    );
    for size in 64..100_000 {
        let ratio = round_size(size) as f64 / size as f64;
        assert!((0.8..1.25).contains(&ratio), "{size}: {ratio}");
    }
    assert!(round_size(u64::MAX) > 1 << 62);
}

proptest! {
    #[test]
    fn decide__keeps_what_the_message_path_relies_on(c in any_constants(), w in overrides(), kernel: bool) {
        let t = decide(&c, &w, kernel);
        prop_assert!((FRAGMENT_MIN..=FRAGMENT_MAX).contains(&t.fragment));
        prop_assert!(t.eager >= SHORT_LIMIT as u64 && t.eager <= WHOLE_MAX);
        prop_assert!(t.first <= EARLY_LIMIT && t.eager <= t.first);
        prop_assert!(t.single_copy > t.eager && t.direct > t.eager);
        prop_assert!(t.piece_min <= t.piece_max && t.piece_min >= 4096);
        prop_assert_eq!(t.pipelined, w.pipeline);
    }

    #[test]
    fn decide__honours_the_overrides(c in any_constants(), w in overrides(), kernel: bool) {
        let t = decide(&c, &w, kernel);
        prop_assert!(kernel || t.single_copy == u64::MAX);
        prop_assert!(w.direct || t.direct == u64::MAX);
        if let Some(most) = w.eager_max {
            prop_assert_eq!(t.first, most.clamp(48, EARLY_LIMIT));
            prop_assert!(t.single_copy > t.first && t.direct > t.first);
        }
        if let Some(chunk) = w.chunk {
            let chunk = chunk.clamp(FRAGMENT_MIN, FRAGMENT_MAX);
            prop_assert_eq!(t.fragment, chunk);
        }
    }

    #[test]
    fn decide__costs_little_more_than_the_best(c in likely_constants(), shared: bool) {
        // A rank that learns starts with the ring, and then follows measured times.
        let t = decide(&c, &FIXED, true);
        let curves = curves(&c, &t, shared);
        for size in sizes(&t) {
            let taken = cost(&curves, chosen(&t, shared, size), size).unwrap();
            // A message that may be eager leaves at once, because its sender then need not wait, even if a copy costs
            // less.
            let open = if size <= t.first { &curves[..4] } else { &curves[..Protocol::Put as usize] };
            let best = open.iter().filter_map(|curve| curve.at(size)).min_by(f64::total_cmp).unwrap();
            // A copy that is best only in a middle range is not chosen: a threshold applies to all larger sizes.
            prop_assert!(taken <= best * 1.5, "{size}: {taken} instead of {best}, {t:?}");
        }
    }
}

#[test]
fn report__of_pairs_that_may_not_connect_tells_of_datagrams_alone() {
    let class = |connections: &str| {
        let pair = ("FASTPATH_CONNECTIONS".into(), connections.into());
        let config = Config::from_pairs([pair]).unwrap();
        let outside = foresee_outside(&config, |_| Some("an adapter".to_owned()));
        SelectionReport::of(&Selection::default(), outside.into_iter().collect())
            .classes
            .pop()
            .unwrap()
    };
    let last = |class: &SelectionClass| class.ranges.last().unwrap().protocol;
    let (one, none) = (class("1"), class("0"));
    assert_eq!(last(&one), "rendezvous get");
    assert_eq!(last(&none), "rendezvous pipelined");
    assert!(one.upgrades.is_some() && none.upgrades.is_none());
    assert!(none.rejected[0].reason.contains("FASTPATH_CONNECTIONS=0"));
}

#[test]
fn single_copy__as_measured_changes_what_concerns_the_kernel_alone() {
    let before = Constants::default();
    for (call_ns, byte_ns) in [(700.0, 0.05), (0.0, 0.0), (1e18, 1e18)] {
        let after = before.with_single_copy(SingleCopyCost { call_ns, byte_ns });
        assert_eq!(after.check(), Ok(()), "{call_ns} {byte_ns}");
        let rest = Constants {
            kernel_call_ns: before.kernel_call_ns,
            kernel_byte_ns: before.kernel_byte_ns,
            ..after
        };
        assert_eq!(rest, before);
    }
    let after = before.with_single_copy(SingleCopyCost { call_ns: 700.0, byte_ns: 0.05 });
    assert_eq!((after.kernel_call_ns, after.kernel_byte_ns), (700.0, 0.05));
}

#[test]
fn quoted__text_is_read_as_it_was() {
    for text in ["", "a \"b\" \\ c", "\u{1b}[1m\n", "\u{7f}\u{e4}"] {
        let quoted = crate::report::quote(text);
        assert_eq!(serde_json::from_str::<String>(&quoted).ok().as_deref(), Some(text));
    }
}
