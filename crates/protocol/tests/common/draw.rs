//! Strategies for random programs: operations, conditions of the network, thresholds.

use super::*;

pub fn op() -> impl Strategy<Value = Op> {
    let rank = || 0_u32..4;
    let source = || prop_oneof![3 => 0_u32..4, 1 => Just(ANY_PEER)];
    let comm = || prop_oneof![4 => Just(0_usize), 1 => 1_usize..3];
    let tag = || prop_oneof![6 => 0_i32..3, 1 => Just(-20)];
    let asked = prop_oneof![3 => tag(), 2 => Just(ANY_TAG)];
    let len = || prop_oneof![3 => 0_usize..50, 3 => 50_usize..700, 1 => 700_usize..9000];
    let way = prop_oneof![2 => Just(ReceiveForm::Plain), 2 => Just(ReceiveForm::Immediate), 1 => Just(ReceiveForm::Matched)];
    prop_oneof![
        6 => (rank(), rank(), comm(), tag(), len(), prop::bool::weighted(0.2), any::<bool>()).prop_map(
            |(from, to, comm, tag, len, synchronous, immediate)| Op::Send { from, to, comm, tag, len, synchronous, immediate }),
        6 => (rank(), source(), comm(), asked, len(), way).prop_map(
            |(at, from, comm, tag, room, way)| Op::Recv { at, from, comm, tag, room, way }),
        1 => (rank(), 0_usize..4).prop_map(|(at, index)| Op::Cancel { at, index }),
        4 => rank().prop_map(Op::Progress),
        3 => (1_u64..2000).prop_map(Op::Advance),
    ]
}

pub fn conditions() -> impl Strategy<Value = Conditions> {
    let refuse = prop_oneof![Just(0.0), 0.0..0.7];
    let loss = prop_oneof![2 => Just(None), 1 => (0.0..0.4, 0.0..0.3).prop_map(Some)];
    (any::<u64>(), 0_u64..500, 0_u64..3000, refuse, 0.0..0.5, loss, 2_usize..40, any::<[bool; 2]>())
        .prop_map(|(seed, delay, jitter, refuse, wake, loss, slots, [get, wireup])| {
            let (drop, double) = loss.unwrap_or((0.1, 0.1));
            let reliable = loss.is_none();
            let delay_ns = delay..=delay + jitter;
            Conditions {
                seed,
                delay_ns,
                refuse,
                wake,
                reliable,
                drop,
                double,
                slots,
                get,
                wireup,
                ..Conditions::default()
            }
        })
}

pub fn thresholds() -> impl Strategy<Value = Thresholds> {
    let fixed = |eager, first, fragment, single_copy| {
        Just(Thresholds { eager, first, fragment, single_copy, ..Thresholds::default() })
    };
    prop_oneof![
        Just(Thresholds::default()),
        fixed(40, 200, 60, u64::MAX),
        fixed(100, 0, 1000, 300),
        fixed(0, 4096, 33, 4097),
        fixed(300, 300, 1, 301),
    ]
}
