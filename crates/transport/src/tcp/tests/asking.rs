//! Checks whether peers are still there.

use super::*;

/// Rounds of progress during which a live peer must not count as gone.
const ROUNDS: u32 = 1000;

/// Two ranks that share no memory, as if on two hosts.
fn make_apart(jobs: &[&'static Job]) -> [TcpIface; 2] {
    for job in jobs {
        let peer = job.rank_page(1 - job.rank()).unwrap();
        peer.elsewhere.store(1, Ordering::Relaxed);
    }
    [0, 1].map(|rank| {
        let iface = make_iface(jobs[rank], Settings::default());
        iface.core().borrow_mut().domain.disown_addresses();
        iface
    })
}

#[test]
fn peer__that_finalized_unseen_is_gone_when_it_is_asked_after() {
    for asks in [true, false] {
        let [mut first, mut second] = make_apart(&make_jobs(2));
        let mut end = first.endpoint(1);
        second.tell_phase(RankPhase::Finalized);
        assert!(!first.has_left(1), "nothing tells so");
        match asks {
            true => assert_eq!(first.ask_after(1), None),
            // A message to the peer has the same effect as a check: it dials.
            false => end.connect(),
        }
        until(&mut [&mut first], "its end", || end.peer_has_left());
        assert!(first.has_left(1));
        assert_eq!((end.failure(), first.ask_after(1)), (None, None));
        assert_eq!(send(&mut end, 1, b"never"), Post::PeerGone);
    }
}

#[test]
fn peer__that_is_late_is_not_gone() {
    let [mut first, mut second] = make_apart(&make_jobs(2));
    assert_eq!(first.ask_after(1), None);
    for _ in 0..ROUNDS {
        first.progress();
        assert!(!first.has_left(1) && first.ask_after(1).is_none());
    }
    // The peer starts, and then leaves.
    let mut ends = [first.endpoint(1), second.endpoint(0)];
    until(&mut [&mut first, &mut second], "a connection", || {
        ends.iter().all(|end| end.link().is_up())
    });
    assert_eq!(send(&mut ends[1], 1, b"late"), Post::Done);
    until(&mut [&mut first], "its message", || ends[0].look().is_some());
    assert!(receive(&mut ends[0]).is_some() && !first.has_left(1));
    second.tell_phase(RankPhase::Finalized);
    until(&mut [&mut first], "its end", || ends[0].peer_has_left());
}

#[test]
fn peer__that_has_not_answered_leaves_when_it_finalizes() {
    let [mut first, mut second] = make_apart(&make_jobs(2));
    let end = first.endpoint(1);
    assert_eq!(first.ask_after(1), None);
    (0..ROUNDS).for_each(|_| _ = first.progress());
    assert!(!end.peer_has_left());
    second.tell_phase(RankPhase::Finalized);
    until(&mut [&mut first], "its end", || end.peer_has_left());
    assert_eq!(end.failure(), None);
}

#[test]
fn peer__that_is_called_in_vain_is_asked_after_again_and_may_call() {
    let jobs = make_jobs(2);
    // Packets to this address are never routed.
    let nowhere = fastpath_job::network::NetworkCard {
        addresses: vec![[255, 255, 255, 255].into()],
        ..jobs[0].network_card(1).unwrap()
    };
    jobs[1].own_page().network.store(&nowhere.encode());
    let [mut first, mut second] = make_apart(&jobs);
    let again = first.ask_after(1).unwrap();
    assert!(again > Duration::ZERO && first.ask_after(1).is_some());
    (0..ROUNDS).for_each(|_| _ = first.progress());
    assert!(!first.has_left(1));
    let mut ends = [first.endpoint(1), second.endpoint(0)];
    ends[1].connect();
    until(&mut [&mut first, &mut second], "a connection", || {
        ends.iter().all(|end| end.link().is_up())
    });
    assert_eq!(ends[0].failure(), None);
    assert_eq!(send(&mut ends[0], 1, b"all the same"), Post::Done);
}
