//! Failures of the peer, the wire and the device, and of each step of creating a connection.

use super::*;

#[test]
fn dead_peer__makes_errors_and_nothing_hangs() {
    let mut pair = RcPair::new(quick());
    let far = ExposedMemory::new(&pair.ifaces[1], 8);
    let [mut near, gone] = pair.ends;
    drop(gone);
    // SAFETY: `put_short` copies the 8 bytes of the array, which are readable now.
    let silent = unsafe { near.put_short([0; 8].as_ptr(), 8, far.remote(0)) };
    assert_eq!(silent, Post::Done);
    let data = [0; 1000];
    // SAFETY: the data outlives the operation.
    let post = unsafe { near.put_zcopy(data.as_ptr(), 1000, far.remote(0), 5) };
    assert_eq!(post, Post::InProgress);
    let start = Instant::now();
    let mut found = None;
    while found.is_none() {
        pair.ifaces[0].progress();
        found = pair.ifaces[0].take_completion();
        assert!(start.elapsed() < WATCHDOG);
    }
    let result = found.unwrap().result;
    assert!(matches!(result, Err(Failure::NoAnswer | Failure::Flushed)), "{result:?}");
    assert_eq!(near.failure(), Some(Failure::NoAnswer));
    assert_eq!((send(&mut near, 0, 8), near.flush(1)), (Post::PeerGone, Post::PeerGone));
    assert!(near.peer_has_left() && near.is_drained());
    assert_eq!(pair.ifaces[0].counters().failures, 1);
}

#[test]
fn silent_send__that_fails_is_reported() {
    let mut pair = RcPair::new(quick());
    let nowhere = Remote { addr: 0x1000, rkey: 0x1234_5678 };
    // SAFETY: `put_short` copies the 8 bytes of the array, which are readable now.
    let post = unsafe { pair.ends[0].put_short([0; 8].as_ptr(), 8, nowhere) };
    assert_eq!(post, Post::Done);
    pair.until("the failure", |pair| pair.ends[0].failure().is_some());
    assert_eq!(pair.ends[0].failure(), Some(Failure::RemoteAccess));
    let said = pair.ifaces[0].last_error().unwrap();
    assert!(said.contains("wrong key"), "{said}");
}

#[test]
fn wrong_key__fails_the_operation_and_the_connection() {
    for kind in 0..2 {
        let mut pair = RcPair::new(quick());
        let far = ExposedMemory::new(&pair.ifaces[1], 8);
        let beyond = far.remote(64);
        let mut data = [0_u8; 16];
        // SAFETY: the data outlives the operation, which is waited for.
        let post = unsafe {
            match kind {
                0 => pair.ends[0].put_zcopy(data.as_ptr(), 16, beyond, 3),
                _ => pair.ends[0].get_zcopy(data.as_mut_ptr(), 16, beyond, 3),
            }
        };
        assert_eq!(post, Post::InProgress);
        assert_eq!(pair.complete(3), Err(Failure::RemoteAccess), "{kind}");
        assert_eq!(send(&mut pair.ends[0], 0, 8), Post::PeerGone);
    }
}

#[test]
fn peer_without_buffers__is_an_error_if_the_timeout_ends() {
    let settings =
        Settings { window: 64, receives: 8, receives_windows: 0, receives_each: 0, ..quick() };
    let mut pair = RcPair::new(settings);
    // The receiver takes nothing and makes no progress. It runs out of buffers before the sender runs out of credits.
    for number in 0..60 {
        assert_eq!(send(&mut pair.ends[0], number, 8), Post::Done);
    }
    let start = Instant::now();
    while pair.ends[0].failure().is_none() {
        pair.ends[0].is_drained();
        assert!(start.elapsed() < WATCHDOG);
    }
    assert_eq!(pair.ends[0].failure(), Some(Failure::NoBuffer));
}

#[test]
fn garbage__is_counted_and_dropped() {
    use crate::verbs::{SendFlags, SendOperation};
    use wire::{PacketKind, Tag};
    let mut pair = RcPair::new(Settings::default());
    let tag = |kind, total| {
        let credits = 0;
        SendOperation::SendImmediate(Tag { kind, credits, total }.encode())
    };
    let bad = [
        (tag(PacketKind::Whole, 0), 3),
        (tag(PacketKind::First, 20_000), 10),
        (tag(PacketKind::More, 0), 100),
        (tag(PacketKind::Credits, 0), 1),
        // The header is omitted, but there is no earlier header that could be used.
        (tag(PacketKind::HeaderElided, 0), 40),
        (SendOperation::SendImmediate(7 << 21), 16),
        (SendOperation::Send, 50),
    ];
    let bytes = [0x5a_u8; 128];
    for (operation, len) in &bad {
        let list = [Sge::over(bytes.as_ptr(), *len, 0)];
        pair.ends[0].with(|connection| {
            let id = connection.sends.posted as u64;
            connection.sends.posted += 1;
            let flags = SendFlags::default();
            // SAFETY: the post copies the payload inline, and `bytes` is readable now.
            let posted = unsafe { connection.pair.post_send(id, operation, &list, flags) };
            assert!(posted.unwrap().inline);
        });
    }
    assert_eq!(send(&mut pair.ends[0], 77, 8), Post::Done);
    let mut seen = None;
    pair.until("the good message", |pair| {
        seen = take(&mut pair.ends[1]);
        seen.is_some()
    });
    assert_eq!(seen, Some((77, 8)));
    assert_eq!(pair.ifaces[1].counters().violations, bad.len() as u64);
}

#[test]
fn failure__at_each_step_leaves_nothing_behind() {
    let (context, real) = test_device();
    let wanted = [
        VerbsCall::AllocPd,
        VerbsCall::RegMr,
        VerbsCall::CreateCq,
        VerbsCall::CreateSrq,
        VerbsCall::CreateQp,
        VerbsCall::QueryQp,
        VerbsCall::ModifyInit,
        VerbsCall::ModifyRtr,
        VerbsCall::ModifyRts,
    ];
    let make = || RcPair::on(&context, Settings::default());
    fault::fail_each_step(&wanted, make, |step, error| match error {
        VerbsError::Value(_) => {
            assert!(matches!(step, VerbsCall::ModifyRtr | VerbsCall::ModifyRts))
        }
        error => assert_eq!(error.errno(), libc::EBUSY),
    });
    drop(context);
    assert_eq!(fault::alive(), 0, "real device: {real}");
}

#[test]
fn device__that_is_taken_out_makes_errors() {
    let context = fake::open();
    fake::set_conditions(fake::Conditions::default());
    let mut pair = RcPair::on(&context, Settings::default()).unwrap();
    let far = ExposedMemory::new(&pair.ifaces[1], 8);
    let data = [0; 64];
    // SAFETY: the data outlives the operation.
    let post = unsafe { pair.ends[0].put_zcopy(data.as_ptr(), 64, far.remote(0), 9) };
    assert_eq!(post, Post::InProgress);
    fake::remove_device();
    assert!(pair.complete(9).is_err());
    assert_eq!(send(&mut pair.ends[0], 0, 8), Post::PeerGone);
    assert_eq!(pair.ends[1].am_bcopy(Header::default(), 8, |_| ()), Post::PeerGone);
    assert!(pair.ends[1].peer_has_left());
}

#[test]
fn port__that_is_down_or_without_address_is_named() {
    let context = fake::open();
    let bad = [(false, true, "port 1 down"), (true, false, "GID table is empty")];
    for (active, addresses, text) in bad {
        fake::set_conditions(fake::Conditions { active, addresses, ..fake::Conditions::default() });
        let error = RcIface::new(&context, None, Settings::default()).err().unwrap();
        let error = error.to_string();
        assert!(error.contains(text) && error.contains("fake0"), "{error}");
    }
    fake::set_conditions(fake::Conditions::default());
    assert!(RcIface::new(&context, Some(2), Settings::default()).is_err());
}

fn posted(iface: &RcIface) -> u64 {
    let counters = iface.counters();
    counters.inline + counters.copied
}

#[test]
fn peer__that_goes_away_is_missed_by_one_that_only_waits() {
    let mut pair = RcPair::new(quick());
    assert_eq!(send(&mut pair.ends[1], 0, 8), Post::Done);
    pair.until("a message", |pair| take(&mut pair.ends[0]).is_some());
    pair.ifaces[0].use_clock(|| 1);
    pair.ifaces[0].arm(|| ());
    let [near, gone] = pair.ends;
    drop(gone);
    let before = posted(&pair.ifaces[0]);
    // A sleep soon after a probe does not probe again, so that a long wait sends the peer few probes.
    pair.ifaces[0].arm(|| ());
    assert_eq!(posted(&pair.ifaces[0]), before);
    pair.ifaces[0].use_clock(|| 20_000_000_000);
    pair.ifaces[0].arm(|| ());
    let start = Instant::now();
    while near.failure().is_none() {
        pair.ifaces[0].progress();
        assert!(start.elapsed() < WATCHDOG);
    }
    assert!(near.peer_has_left());
}

#[test]
fn port__that_goes_down_makes_one_that_only_waits_ask_when_it_is_back_or_stays_down() {
    let context = fake::open();
    fake::set_conditions(fake::Conditions::default());
    let mut pair = RcPair::on(&context, Settings::default()).unwrap();
    let sent = pair.ifaces.each_ref().map(posted);
    let mut look = |active: bool, clock: fn() -> u64, asked: u64| {
        fake::set_conditions(fake::Conditions { active, ..fake::Conditions::default() });
        for (iface, sent) in pair.ifaces.iter_mut().zip(sent) {
            iface.use_clock(clock);
            iface.arm(|| ());
            assert_eq!(posted(iface), sent + asked);
        }
        for _ in 0..10 {
            pair.progress();
        }
    };
    look(true, || 1_000_000_000, 0);
    look(false, || 2_000_000_000, 0);
    look(false, || 11_900_000_000, 0);
    look(true, || 11_950_000_000, 1);
    look(false, || 12_000_000_000, 1);
    look(false, || 22_000_000_000, 2);
    assert_eq!(pair.ends[0].failure(), None);
}

#[test]
fn event__that_says_little_costs_no_question() {
    let context = fake::open();
    fake::set_conditions(fake::Conditions::default());
    let mut pair = RcPair::on(&context, Settings::default()).unwrap();
    pair.ifaces.iter_mut().for_each(|iface| iface.use_clock(|| 1));
    pair.ifaces[0].arm(|| ());
    let before = posted(&pair.ifaces[0]);
    let mut tell = |event: i32| {
        fault::take_seen();
        fake::report(event);
        pair.ifaces[0].arm(|| ());
        let asked = fault::take_seen().contains(&VerbsCall::QueryPort);
        for _ in 0..10 {
            pair.progress();
        }
        (asked, posted(&pair.ifaces[0]) - before)
    };
    for event in fake::QUIET_EVENTS {
        assert_eq!(tell(event), (false, 0), "event {event}");
    }
    // A port becomes active again.
    assert_eq!(tell(9), (true, 1));
}

#[test]
fn peer__that_has_not_opened_its_end_yet_is_not_asked() {
    let (context, _) = test_device();
    let mut ifaces = [(); 2].map(|()| RcIface::new(&context, None, quick()).unwrap());
    let [mut near, mut far] = ifaces.each_ref().map(|iface| iface.endpoint(None).unwrap());
    assert!(near.open(&far.local_address()));
    for clock in [|| 1, || 20_000_000_000, || 40_000_000_000] {
        ifaces[0].use_clock(clock);
        ifaces[0].arm(|| ());
        (0..200).for_each(|_| _ = ifaces[0].progress());
    }
    assert_eq!((near.failure(), posted(&ifaces[0])), (None, 0));
    assert!(far.open(&near.local_address()));
    near.set_ready();
    ifaces[0].use_clock(|| 60_000_000_000);
    ifaces[0].arm(|| ());
    assert_eq!(posted(&ifaces[0]), 1);
    while !near.is_drained() {
        ifaces[0].progress();
    }
    assert_eq!(near.failure(), None);
}
