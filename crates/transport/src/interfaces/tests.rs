//! Transports between the pairs of a job.
#![allow(unsafe_code)]

use super::*;
use crate::contract::{Connection, Header, Post};
use crate::verbs::{Failure, fake, fault};
use fastpath_base::config::Config;

/// Interfaces of ranks on the hosts with these numbers, each with the fake adapter.
fn open_by(by: AdapterTransport, hosts: &[u32], shm: bool) -> Vec<Interfaces> {
    fake::set_conditions(fake::Conditions::default());
    let context = fake::open();
    let jobs: &'static [Job] = Job::on_hosts(hosts).unwrap().leak();
    let open = |job| {
        let mut interfaces = Interfaces::open(job);
        interfaces.allowed.shm = shm;
        let overrides = Overrides::default();
        interfaces.use_adapter(Adapter::new(by, &context, None, &overrides, job).unwrap());
        interfaces
    };
    jobs.iter().map(open).collect()
}

fn open_on(hosts: &[u32], shm: bool) -> Vec<Interfaces> {
    open_by(AdapterTransport::Rc, hosts, shm)
}

fn name(lane: &Lane) -> &'static str {
    lane.capabilities().map_or("none", |c| c.name)
}

#[test]
fn lanes__are_shared_memory_within_a_host_and_rc_between_hosts() {
    let ranks = open_on(&[0, 0, 1, 1], true);
    for (from, interfaces) in ranks.iter().enumerate() {
        for to in 0..4_usize {
            let expected = match (from == to, from / 2 == to / 2) {
                (true, _) => "loopback",
                (_, true) => "shm",
                _ => "rc",
            };
            assert_eq!(name(&interfaces.make_lane(to as u32)), expected, "{from} to {to}");
        }
    }
    let forced = open_on(&[0, 0], false);
    assert_eq!(name(&forced[0].make_lane(1)), "rc");
    let by_datagrams = open_by(AdapterTransport::Ud, &[0, 0, 1], true);
    let names = [1, 2].map(|to| name(&by_datagrams[0].make_lane(to)));
    assert_eq!(names, ["shm", "ud"]);
    let by_both = open_by(AdapterTransport::Upgrading, &[0, 0, 1], true);
    let names = [1, 2].map(|to| name(&by_both[0].make_lane(to)));
    assert_eq!(names, ["shm", "upgrade"]);
}

#[test]
fn queue_pairs__are_made_for_pairs_that_talk_alone() {
    let ranks = open_on(&[0, 1, 1, 1], true);
    let before = fault::alive();
    let lanes: Vec<Lane> = (1..4).map(|to| ranks[1].make_lane(to)).collect();
    assert_eq!(fault::alive(), before, "neighbours need no queue pair");
    let lane = ranks[0].make_lane(2);
    assert_eq!(name(&lane), "rc");
    let counts = ranks.iter().map(|rank| match rank.adapter.as_ref().map(|(adapter, _)| adapter) {
        Some(Adapter::Rc(iface)) => iface.counters().connections,
        _ => u64::MAX,
    });
    assert_eq!(counts.collect::<Vec<_>>(), [1, 0, 0, 0]);
    drop((lanes, lane));
}

#[test]
fn accept__tells_rings_from_mail() {
    let mut ranks = open_on(&[0, 0, 1], true);
    let mut near = ranks[1].make_lane(0);
    ranks[1].connect(&mut near).unwrap();
    let address = Address::new(&[9; 40]).unwrap();
    ranks[2].send_wireup(0, 1, address);
    let mut found = Vec::new();
    ranks[0].accept(|peer| found.push(peer));
    assert_eq!(found, [1]);
    assert!(ranks[0].wireup_signals());
    assert_eq!(ranks[0].receive_wireup(), Some((2, 1, address)));
    assert_eq!(ranks[0].receive_wireup(), None);
    // The ring from rank 1 works too.
    let mut back = ranks[0].make_lane(1);
    back.open_receive();
    // SAFETY: there is no payload.
    let post = unsafe { near.am_short(Header::new(7, 1, 2), std::ptr::null(), 0) };
    assert!(matches!(post, Post::Done | Post::Wake));
    assert_eq!(back.look().unwrap().header.id, 7);
}

/// Two ranks and the lanes between them, open both ways.
fn connect_by(by: AdapterTransport) -> (Vec<Interfaces>, [Lane; 2]) {
    let ranks = open_by(by, &[0, 1], true);
    let mut lanes = [ranks[0].make_lane(1), ranks[1].make_lane(0)];
    let [one, two] = lanes.each_ref().map(Lane::local_address);
    for (lane, far) in lanes.iter_mut().zip([two, one]) {
        assert!(lane.open(&far));
        lane.set_ready();
    }
    (ranks, lanes)
}

#[test]
fn peers__that_only_spin_beyond_a_cut_wire_are_given_up() {
    for by in [AdapterTransport::Ud, AdapterTransport::Upgrading] {
        let (mut ranks, mut lanes) = connect_by(by);
        for rank in &ranks {
            match &rank.adapter {
                Some((Adapter::Ud(iface, _), _)) => iface.use_clock(fake::now_ns),
                Some((Adapter::Upgrade(iface), _)) => iface.parts().0.use_clock(fake::now_ns),
                _ => unreachable!("opened by datagrams"),
            }
        }
        fake::set_conditions(fake::Conditions {
            faults: fake::Faults { drop: 1.0, ..fake::Faults::default() },
            ..fake::Conditions::default()
        });
        assert_eq!(lanes[0].am_bcopy(Header::new(7, 1, 0), 8, |_| ()), Post::Done);
        let began = fake::now_ns();
        while lanes[0].describe_failure(1).is_none() {
            for rank in &mut ranks {
                (0..100).for_each(|_| _ = rank.progress());
            }
            fake::advance(250_000_000);
            assert!(fake::now_ns() - began < 400_000_000_000, "{by}");
        }
        assert!(fake::now_ns() - began > 290_000_000_000, "{by}");
        assert_eq!(
            (lanes[0].describe_failure(1), lanes[1].describe_failure(0)),
            (
                Some(format!(
                    "the adapter has lost rank 1 of MPI_COMM_WORLD ({})",
                    Failure::NoAnswer
                )),
                None
            )
        );
    }
}

/// Removes the device. Call this in a thread of its own, because each thread has its own fake device.
fn miss_device(by: AdapterTransport) {
    let (mut ranks, lanes) = connect_by(by);
    fake::remove_device();
    for (rank, lane) in ranks.iter_mut().zip(&lanes) {
        assert!(!lane.peer_has_left());
        rank.arm();
        assert!(lane.peer_has_left(), "{by}");
    }
    let said = match ranks[1].adapter.as_ref().map(|(adapter, _)| adapter) {
        Some(Adapter::Rc(iface)) => iface.last_error(),
        Some(Adapter::Ud(iface, _)) => iface.last_error(),
        Some(Adapter::Upgrade(iface)) => iface.parts().0.last_error(),
        None => None,
    };
    let said = said.unwrap_or_default();
    assert!(said.contains("fake0: the device is gone"), "{by}: {said}");
}

#[test]
fn device__that_is_taken_out_is_missed_by_one_that_only_waits() {
    for by in [AdapterTransport::Rc, AdapterTransport::Ud, AdapterTransport::Upgrading] {
        std::thread::spawn(move || miss_device(by)).join().unwrap();
    }
}

#[test]
fn declared_memory__is_registered_once() {
    let mut ranks = open_on(&[0, 1], true);
    let mut lane = ranks[0].make_lane(1);
    let mut memory = vec![0_u8; 100_000];
    let (start, at) = (memory.as_ptr().addr(), memory.as_mut_ptr());
    // SAFETY: the memory outlives its registration.
    let mut show = || unsafe {
        let shown = lane.register(at.add(100), 50_000).unwrap();
        lane.deregister(shown.rkey);
    };
    let count = |rank: &Interfaces| match &rank.adapter {
        Some((Adapter::Rc(iface), _)) => {
            let counts = iface.with_registrations(|all| all.counts());
            (counts.made, counts.reused)
        }
        _ => unreachable!("opened by rc"),
    };
    ranks[0].declare_memory(start..start + 100_000);
    (0..3).for_each(|_| show());
    assert_eq!(count(&ranks[0]), (1, 2));
    ranks[0].forget_memory(start);
    show();
    show();
    assert_eq!(count(&ranks[0]), (3, 2), "each is registered anew");
}

/// Two ranks on different nodes, each with sockets and with the adapter transport in `by`, if any.
fn open_apart(by: [Option<AdapterTransport>; 2]) -> Vec<Interfaces> {
    fake::set_conditions(fake::Conditions::default());
    let context = fake::open();
    let jobs: &'static [Job] = Job::on_nodes(&[0, 1]).unwrap().leak();
    let on_loopback = [("FASTPATH_INTERFACES".into(), "lo".into())];
    let config = Config::from_pairs(on_loopback).unwrap();
    let open = |(job, by): (&'static Job, Option<AdapterTransport>)| {
        let mut interfaces = Interfaces::open(job);
        interfaces.allowed.fall_back = true;
        match by {
            Some(by) => {
                let overrides = Overrides::default();
                interfaces.use_adapter(Adapter::new(by, &context, None, &overrides, job).unwrap());
            }
            None => interfaces.allowed.tcp = true,
        }
        interfaces.open_tcp(&config).unwrap();
        interfaces
    };
    let ranks = jobs.iter().zip(by).map(open).collect();
    for (own, other) in [(0, 1), (1, 0)] {
        jobs[own].learn_card(other, &jobs[other].network_card(other).unwrap());
    }
    ranks
}

fn progress_until(ranks: &mut [Interfaces], mut done: impl FnMut(&mut [Interfaces]) -> bool) {
    for _ in 0..1_000_000 {
        if done(ranks) {
            return;
        }
        ranks.iter_mut().for_each(|rank| _ = rank.progress());
    }
    panic!("waited in vain");
}

#[test]
fn adapters__of_two_memories_find_each_other_and_miss_each_other_by_the_network() {
    use AdapterTransport::{Rc, Ud, Upgrading};
    for by in [Rc, Ud, Upgrading] {
        let mut ranks = open_apart([Some(by); 2]);
        let mut lanes = [ranks[0].make_lane(1), ranks[1].make_lane(0)];
        for (from, to) in [(0, 1), (1, 0)] {
            let address = lanes[from].local_address();
            assert!(ranks[from].send_wireup(to as u32, 2, address));
            let mut received = None;
            progress_until(&mut ranks, |ranks| {
                assert_eq!(ranks[from].receive_wireup(), None, "{by}");
                received = ranks[to].receive_wireup();
                received.is_some()
            });
            assert_eq!(received, Some((from as u32, 2, address)), "{by}");
            assert!(lanes[to].open(&address));
        }
        lanes.iter_mut().for_each(Connection::set_ready);
        let posted = lanes[0].am_bcopy(Header::new(7, 1, 0), 8, |_| ());
        assert_eq!(posted, Post::Done, "{by}");
        progress_until(&mut ranks, |_| lanes[1].look().is_some());
        assert!(!ranks[0].refuses_adapter(1) && !lanes[1].peer_has_left());
        lanes[1].take();
        // The end of a process ends its connections.
        drop(ranks.remove(0));
        progress_until(&mut ranks, |_| lanes[1].peer_has_left());
        assert!(ranks[0].failure(0).unwrap().contains("rank 0"), "{by}");
    }
}

#[test]
fn adapters__that_cannot_meet_leave_their_peers_to_the_network() {
    use AdapterTransport::{Rc, Ud};
    for (by, says) in
        [([Some(Rc), Some(Ud)], "other transports"), ([Some(Rc), None], "no usable adapter")]
    {
        let mut ranks = open_apart(by);
        let asking = ranks[1].make_lane(0).local_address();
        assert!(ranks[1].send_wireup(0, 1, asking));
        progress_until(&mut ranks, |ranks| ranks[0].wireup_signals());
        assert!(!ranks[0].refuses_adapter(1));
        assert_eq!(ranks[0].receive_wireup(), Some((1, 1, asking)));
        assert!(ranks[0].refuses_adapter(1));
        assert_eq!(ranks[0].take_without_adapter(), Some(1));
        assert_eq!(ranks[0].take_without_adapter(), None);
        assert!(ranks[0].leave_adapter(1));
        assert_eq!(name(&ranks[0].make_lane(1)), "tcp");
        ranks[0].allowed.fall_back = false;
        assert!(!ranks[0].leave_adapter(1));
        assert!(ranks[0].failure(1).unwrap().contains(says), "{by:?}");
    }
}

/// Sends repeatedly until the other rank has received; returns the number of sends, or `None` if it never received.
fn ask(ranks: &mut [Interfaces], step: u8) -> Option<u32> {
    let address = Address::new(&[9; 30]).unwrap();
    for sent in 1..100 {
        ranks[0].send_wireup(1, step, address);
        // Wait 2 ms after each send: [`Meeting::is_vain`] counts messages less than 1 ms apart as one.
        let begun = std::time::Instant::now();
        while begun.elapsed().as_millis() < 2 {
            ranks.iter_mut().for_each(|rank| _ = rank.progress());
            ranks[0].receive_wireup();
            if let Some(received) = ranks[1].receive_wireup() {
                assert_eq!(received, (0, step, address));
                return Some(sent);
            }
        }
    }
    None
}

#[test]
fn adapters__with_no_way_between_them_are_found_out() {
    use AdapterTransport::{Ud, Upgrading};
    for by in [Ud, Upgrading] {
        let lossy = |drop| {
            fake::set_conditions(fake::Conditions {
                faults: fake::Faults { drop, ..fake::Faults::default() },
                ..fake::Conditions::default()
            });
        };
        let mut ranks = open_apart([Some(by); 2]);
        lossy(1.0);
        let sent = ask(&mut ranks, 1).unwrap();
        assert!((12..90).contains(&sent), "{by}: {sent}");
        assert!(ranks[1].refuses_adapter(0) && !ranks[0].refuses_adapter(1));
        assert_eq!(ranks[1].take_without_adapter(), Some(0));
        ranks[1].allowed.fall_back = false;
        assert!(ranks[1].failure(0).unwrap().contains("do not reach this rank's adapter"));
        // Lost datagrams are no reason to abandon a path on which other datagrams arrive.
        let mut ranks = open_apart([Some(by); 2]);
        lossy(0.5);
        assert!(ask(&mut ranks, 1).is_some());
        assert!(!ranks[1].refuses_adapter(0), "{by}");
    }
}

#[test]
fn message__by_the_network_says_that_its_sender_has_no_adapter() {
    let mut ranks = open_apart([Some(AdapterTransport::Rc), None]);
    let mut lane = ranks[1].make_lane(0);
    ranks[1].connect(&mut lane).unwrap();
    progress_until(&mut ranks, |_| lane.am_bcopy(Header::new(7, 1, 0), 8, |_| ()) == Post::Done);
    let mut found = Vec::new();
    progress_until(&mut ranks, |ranks| {
        ranks[0].accept(|peer| found.push(peer));
        !found.is_empty()
    });
    assert_eq!((found, ranks[0].take_without_adapter()), (vec![1], Some(1)));
    let mut back = ranks[0].make_lane(1);
    assert_eq!(name(&back), "tcp");
    assert_eq!(back.look().unwrap().header.id, 7);
}
