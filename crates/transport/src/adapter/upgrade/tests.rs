//! Upgrades from datagrams to a connection: order, refusals, limits, resting.
#![allow(unsafe_code, non_snake_case)]

use super::testing::*;
use super::*;
use crate::adapter::rc::Settings as RcSettings;
use crate::adapter::testing::pass;
use crate::adapter::ud::Settings as UdSettings;
use crate::contract::*;
use crate::lane::Lane;
use crate::verbs::fake::{self, Conditions, Faults};
use crate::verbs::{VerbsCall, fault};
use proptest::prelude::*;

fn pair() -> UpgradePair {
    UpgradePair::new(RcSettings::default(), UdSettings::default())
}

fn send(end: &mut impl Endpoint, number: u32, len: usize) -> bool {
    let (header, data) = message(number, len);
    // SAFETY: `to` has room for `len` bytes.
    let post =
        end.am_bcopy(header, len, |to| unsafe { to.copy_from_nonoverlapping(data.as_ptr(), len) });
    assert!(matches!(post, Post::Done | Post::NoResource), "{post:?}");
    post == Post::Done
}

/// Takes the next message, if it has arrived, and asserts its number and length.
fn take(look: Option<Arrival<'_>>, number: u32, len: usize) -> bool {
    let Some(arrival) = look else {
        return false;
    };
    let (header, data) = message(number, len);
    assert_eq!(arrival.header, header, "another message than the next one");
    // SAFETY: an arrival is valid until it is taken.
    let seen = unsafe { std::slice::from_raw_parts(arrival.data(), arrival.len()) };
    assert!(seen == data, "message {number}");
    true
}

fn lane_send(lane: &mut Lane, number: u32, len: usize) -> bool {
    let (header, data) = message(number, len);
    // SAFETY: `to` has room for `len` bytes.
    let post =
        lane.am_bcopy(header, len, |to| unsafe { to.copy_from_nonoverlapping(data.as_ptr(), len) });
    assert!(matches!(post, Post::Done | Post::NoResource), "{post:?}");
    post == Post::Done
}

/// Generated input of the property test `order__is_kept_across_the_change`.
#[derive(Debug, Clone)]
struct UpgradePlan {
    lens: [Vec<usize>; 2],
    /// `opened`: round in which the connection is opened. `used`: for each side, first round in which it may use it.
    opened: u32,
    used: [u32; 2],
    faults: Faults,
}

fn plans() -> impl Strategy<Value = UpgradePlan> {
    let len = prop_oneof![4 => 0_usize..300, 2 => 300_usize..5000, 1 => 5000_usize..=32768];
    let lens = || prop::collection::vec(len.clone(), 0..60);
    let faults = (0.0..0.3, 0.0..0.2, 0.0..0.3).prop_map(|(drop, double, late)| Faults {
        drop,
        double,
        late,
    });
    let rounds = (0_u32..40, 0_u32..30, 0_u32..30);
    (lens(), lens(), rounds, faults).prop_map(|(a, b, (opened, first, second), faults)| {
        UpgradePlan { lens: [a, b], opened, used: [opened + first, opened + second], faults }
    })
}

fn run(plan: &UpgradePlan) {
    let mut pair = pair();
    fake::set_conditions(Conditions { faults: plan.faults, ..Conditions::default() });
    let mut lanes: Option<[Lane; 2]> = None;
    let (mut sent, mut taken) = ([0_usize; 2], [0_usize; 2]);
    for round in 0_u32.. {
        assert!(round < 100_000, "hangs: {plan:?} {sent:?} {taken:?}");
        if round == plan.opened {
            pair.open_connection();
        }
        if round >= plan.opened && lanes.is_none() {
            let UpgradePair { ends, ifaces, .. } = pair;
            lanes = Some(ends.map(|end| Lane::Upgrade(Box::new(end))));
            pair = UpgradePair { ends: spare_ends(&ifaces), ifaces, real: false };
        }
        for side in 0..2 {
            let lens = &plan.lens[side];
            let peer_lens = &plan.lens[1 - side];
            for _ in 0..3 {
                let Some(&len) = lens.get(sent[side]) else {
                    break;
                };
                let number = sent[side] as u32;
                let left = match &mut lanes {
                    Some(lanes) => lane_send(&mut lanes[side], number, len),
                    None => send(&mut pair.ends[side], number, len),
                };
                sent[side] += left as usize;
            }
            let (number, len) = (taken[side] as u32, peer_lens.get(taken[side]).copied());
            let there = match &mut lanes {
                Some(lanes) => {
                    let there = take(lanes[side].look(), number, len.unwrap_or(0));
                    match there {
                        true => lanes[side].take(),
                        false => lanes[side].return_credits(),
                    }
                    there
                }
                None => {
                    let end = &mut pair.ends[side];
                    let there = take(end.look(), number, len.unwrap_or(0));
                    if there {
                        end.take();
                    }
                    there
                }
            };
            assert!(!there || len.is_some(), "a message that was not sent");
            taken[side] += there as usize;
            if let (Some(lanes), true) = (&mut lanes, round == plan.used[side]) {
                lanes[side].finish_upgrade();
            }
        }
        pair.progress();
        if round % 4 == 3 {
            pair.pass();
        }
        let all = taken == [plan.lens[1].len(), plan.lens[0].len()];
        let upgraded = |lane: &Lane| matches!(lane, Lane::Rc(_));
        if all && lanes.as_ref().is_some_and(|lanes| lanes.iter().all(upgraded)) {
            break;
        }
    }
    let mut lanes = lanes.unwrap();
    // Later messages use the connection alone.
    assert!(lane_send(&mut lanes[0], 7, 100));
    assert!(take(lanes[1].look(), 7, 100));
    let counts = [0, 1].map(|side: usize| pair.ifaces[side].counters().upgraded);
    assert_eq!(counts, [1, 1]);
}

/// Creates endpoints that use up the limit of connections.
fn spare_ends(ifaces: &[UpgradeIface; 2]) -> [UpgradeEndpoint; 2] {
    [0, 1].map(|side: usize| ifaces[side].endpoint(1 - side as u32, None).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn order__is_kept_across_the_change(plan in plans()) {
        run(&plan);
    }
}

/// A receiver under constant traffic never finds an idle moment for the upgrade.
#[test]
fn lane__leaves_datagrams_behind_under_constant_traffic() {
    let mut pair = pair();
    pair.open_connection();
    let UpgradePair { ends, mut ifaces, .. } = pair;
    let mut lanes = ends.map(|end| Lane::Upgrade(Box::new(end)));
    lanes.iter_mut().for_each(Lane::finish_upgrade);
    let (mut sent, mut taken) = ([0; 2], [0; 2]);
    for _ in 0..100 {
        for side in 0..2 {
            while sent[side] < taken[1 - side] + 4 {
                assert!(lane_send(&mut lanes[side], sent[side], 8));
                sent[side] += 1;
            }
        }
        for iface in &mut ifaces {
            iface.progress(false, || ());
        }
        for side in 0..2 {
            if take(lanes[side].look(), taken[side], 8) {
                lanes[side].take();
                taken[side] += 1;
            }
        }
    }
    assert!(lanes.iter().all(|lane| matches!(lane, Lane::Rc(_))));
    assert!(taken.iter().all(|&count| count > 50), "{taken:?}");
    assert!(ifaces.iter_mut().all(UpgradeIface::take_news));
}

#[test]
fn upgrade_request__comes_once_by_traffic_or_by_a_long_message() {
    let mut pair = pair();
    let messages = Rule::default().messages(8);
    for number in 0..messages as u32 {
        assert_eq!(pair.ifaces[0].take_upgrade_request(), None, "after {number}");
        pair.until("room", |pair| send(&mut pair.ends[0], number, 8));
        pair.until("it", |pair| pair.ends[1].look().is_some());
        pair.ends[1].take();
    }
    assert_eq!(pair.ifaces[0].take_upgrade_request(), Some(1));
    pair.until("room", |pair| send(&mut pair.ends[0], 0, 8));
    assert_eq!(pair.ifaces[0].take_upgrade_request(), None);
    let mut data = [0_u8; 64];
    // SAFETY: nothing is registered.
    let shown = unsafe { pair.ends[1].register(data.as_mut_ptr(), 64) };
    assert_eq!((shown, pair.ifaces[1].take_upgrade_request()), (None, Some(0)));
}

#[test]
fn get__reads_what_was_shown_after_the_change() {
    let mut pair = pair();
    pair.open_connection();
    let (mut from, mut to) = (vec![5_u8; 100_000], vec![0_u8; 100_000]);
    let at = from.as_mut_ptr();
    // SAFETY: the memory outlives its registration.
    assert_eq!(unsafe { pair.ends[0].register(at, 100_000) }, None);
    pair.ends[0].finish_upgrade();
    // SAFETY: the memory outlives its registration.
    let shown = unsafe { pair.ends[0].register(at, 100_000) }.unwrap();
    let nowhere = Remote { addr: 0, rkey: 0 };
    // SAFETY: a read of 0 bytes needs no room.
    let early = unsafe { pair.ends[1].get(to.as_mut_ptr(), 0, nowhere) };
    assert_eq!(early, Err(RemoteError::Unsupported), "not before the word");
    assert!(send(&mut pair.ends[0], 1, 10));
    pair.until("the message", |pair| pair.ends[1].look().is_some());
    // SAFETY: `to` has room for 100,000 bytes.
    let got = unsafe { pair.ends[1].get(to.as_mut_ptr(), 100_000, shown) };
    assert_eq!(got, Ok(()));
    assert_eq!(from, to);
    pair.ends[0].deregister(shown.rkey);
}

#[test]
fn prepare__beyond_the_limit_or_without_memory_leaves_the_pair_on_datagrams() {
    let mut pair = pair();
    let limited = Rule { most: 0, ..Rule::default() };
    pair.ifaces[0].set_rule(limited);
    let refused = pair.ifaces[0].prepare(&mut pair.ends[0]);
    assert_eq!(refused, Err(Refusal::Limit));
    fault::arm(VerbsCall::ModifyInit, 0, libc::ENOMEM);
    let refused = pair.ifaces[1].prepare(&mut pair.ends[1]);
    assert!(matches!(refused, Err(Refusal::Failed(_))), "{refused:?}");
    assert!(!fault::disarm());
    let counts = [0, 1].map(|side: usize| {
        let c = pair.ifaces[side].counters();
        (c.limited, c.stayed)
    });
    assert_eq!(counts, [(1, 0), (0, 1)]);
    for number in 0..200 {
        pair.until("room", |pair| send(&mut pair.ends[0], number, 1000));
        pair.until("it", |pair| take(pair.ends[1].look(), number, 1000));
        pair.ends[1].take();
    }
    assert_eq!(pair.ends[0].capabilities().get_zcopy, 0);
}

#[test]
fn limit__is_of_connections_that_are_there() {
    let mut ifaces = open(4, RcSettings::default(), UdSettings::default());
    let rule = Rule { most: 2, ..Rule::default() };
    ifaces[0].set_rule(rule);
    let mut ends: Vec<_> = (1..4).map(|peer| ifaces[0].endpoint(peer, None).unwrap()).collect();
    let made: Vec<bool> = ends.iter_mut().map(|end| ifaces[0].prepare(end).is_ok()).collect();
    assert_eq!(made, [true, true, false]);
    ends.swap_remove(0);
    let mut another = ifaces[0].endpoint(1, None).unwrap();
    assert_eq!(ifaces[0].prepare(&mut another), Ok(()));
}

#[test]
fn datagrams__are_not_looked_for_once_all_pairs_have_upgraded() {
    let UpgradePair { ends, ifaces, .. } = {
        let mut pair = pair();
        pair.open_connection();
        pair.ends.iter_mut().for_each(|end| end.finish_upgrade());
        pair
    };
    let mut ifaces = ifaces;
    let mut lanes = ends.map(|end| Lane::Upgrade(Box::new(end)));
    let polls = |ifaces: &[UpgradeIface; 2]| {
        [0, 1].map(|side: usize| ifaces[side].parts().0.counters().recv_polls)
    };
    let progress = |ifaces: &mut [UpgradeIface; 2], lanes: &mut [Lane; 2]| {
        for (iface, lane) in ifaces.iter_mut().zip(lanes) {
            iface.progress(false, || ());
            assert!(lane.look().is_none());
            lane.return_credits();
        }
    };
    for _ in 0..100 {
        progress(&mut ifaces, &mut lanes);
        pass(&ifaces);
    }
    assert!(lanes.iter().all(|lane| matches!(lane, Lane::Rc(_))));
    let before = polls(&ifaces);
    for _ in 0..1000 {
        progress(&mut ifaces, &mut lanes);
    }
    assert_eq!(polls(&ifaces), before);

    // A new pair connects: the wireup datagram wakes the resting queue pair.
    let address = Address::new(&[3; 20]).unwrap();
    assert!(send_wireup(&mut ifaces[0], 1, 1, address));
    ifaces[0].progress(true, || ());
    let start = std::time::Instant::now();
    while !ifaces[1].has_wireup_datagrams() {
        // The fake adapter executes posts during polls, so poll until the watcher thread has set the bell.
        ifaces[0].progress(true, || ());
        ifaces[1].progress(false, || ());
        assert!(start.elapsed().as_secs() < 20, "the wireup_datagram is not seen");
    }
    assert_eq!(take_wireup(&mut ifaces[1]), Some((0, 1, address)));
    // Make progress until the queue pair rests again.
    for _ in 0..20 {
        ifaces[1].progress(false, || ());
    }
    let before = polls(&ifaces)[1];
    (0..1000).for_each(|_| {
        ifaces[1].progress(false, || ());
    });
    assert_eq!(polls(&ifaces)[1], before);
}

fn send_wireup(iface: &mut UpgradeIface, peer: u32, step: u8, address: Address) -> bool {
    let (ud, addresses) = iface.datagrams();
    addresses.send(ud, peer, step, address)
}

fn take_wireup(iface: &mut UpgradeIface) -> Option<(u32, u8, Address)> {
    let (ud, addresses) = iface.datagrams();
    addresses.take(ud)
}

#[test]
fn wireup_datagrams__of_strangers_are_dropped_and_counted() {
    let mut ifaces = open(3, RcSettings::default(), UdSettings::default());
    let address = Address::default();
    assert!(send_wireup(&mut ifaces[2], 0, 1, address));
    // Rank 1 forges a datagram of rank 2.
    let iface_address = ifaces[1].datagrams().1.find(0).unwrap();
    let forged = crate::adapter::ud::WireupDatagram { qpn: 0, rank: 2, step: 9, address };
    let (ud, _) = ifaces[1].datagrams();
    assert!(ud.send_wireup_datagram(&iface_address, &forged));
    for iface in &mut ifaces {
        iface.progress(true, || ());
    }
    ifaces[0].progress(true, || ());
    let mut read = Vec::new();
    while let Some(wireup_datagram) = take_wireup(&mut ifaces[0]) {
        read.push(wireup_datagram);
    }
    assert_eq!(read, [(2, 1, address)]);
    assert_eq!(ifaces[0].counters().strangers, 1);
}

#[test]
fn send_wireup_datagram__to_one_that_has_no_card_does_not_leave() {
    let mut ifaces = open(2, RcSettings::default(), UdSettings::default());
    assert!(!send_wireup(&mut ifaces[0], 7, 1, Address::default()));
}
