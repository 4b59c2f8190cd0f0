//! A queue pair that has stopped is started anew, with each step of that failing once, or for good.

use super::*;

/// Messages of each end before and during an outage.
const MESSAGES: u32 = 60;
/// Time between two looks at everything.
const STEP_NS: u64 = 20_000_000;

fn set_port(active: bool) {
    fake::set_conditions(fake::Conditions {
        active,
        sends_stop_alone: true,
        ..fake::Conditions::default()
    });
}

/// What is to go wrong in an outage.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    Nothing,
    /// This step, when it has come so often before.
    Once(VerbsCall, u32),
    /// This step, whenever it comes.
    Always(VerbsCall),
    /// The posting of receive buffers, after so many calls of it: so many.
    Receives(u64, u64),
}

/// What became of it.
struct RestartResult {
    seen: [Vec<u32>; 2],
    failures: [Option<Failure>; 2],
    lasted_ns: u64,
    steps: Vec<VerbsCall>,
    said: String,
}

/// Both ends send, and the port is down for a moment; then everything goes on, or an end has failed.
fn ride_out(trouble: Trouble) -> RestartResult {
    let base = fault::alive();
    let mut pair = UdPair::fake(Settings::default());
    set_port(false);
    let began = fake::now_ns();
    fault::take_seen();
    match trouble {
        Trouble::Nothing => {}
        Trouble::Once(step, after) => fault::arm(step, after, libc::EBUSY),
        Trouble::Always(step) => fault::end(step, libc::EBUSY),
        Trouble::Receives(after, count) => _ = fake::refuse_receive_posts(after, count),
    }
    let (mut sent, mut seen) = ([0; 2], [vec![], vec![]]);
    let mut more = Vec::new();
    let failures = loop {
        for me in 0..2 {
            // Some each time, so that some are sent in every state; first more than one poll of the queue takes.
            for _ in 0..if sent[me] == 0 { 50 } else { 2 } {
                if sent[me] < MESSAGES && send(&mut pair.ends[me], sent[me], 100) == Post::Done {
                    sent[me] += 1;
                }
            }
            while let Some((number, _)) = take(&mut pair.ends[me]) {
                seen[me].push(number);
            }
        }
        (0..80).for_each(|_| pair.progress());
        set_port(true);
        fake::advance(STEP_NS);
        // Connections that are made meanwhile bring receive buffers with them.
        if more.len() < 600 && pair.ends.iter().all(|end| end.failure().is_none()) {
            let add = |iface: &UdIface| [(); 70].map(|()| iface.endpoint(None).unwrap());
            more.extend(pair.ifaces.iter().flat_map(add));
        }
        let failures = pair.ends.each_ref().map(UdEndpoint::failure);
        let whole = seen.iter().all(|seen| seen.len() == MESSAGES as usize);
        let known = whole && pair.ends.iter_mut().all(|end| end.is_drained());
        if known || failures.iter().all(Option::is_some) {
            break failures;
        }
        let lasted_ns = fake::now_ns() - began;
        assert!(lasted_ns < 30_000_000_000, "{trouble:?}: hangs: {seen:?}");
    };
    for (iface, end) in pair.ifaces.iter().zip(&mut pair.ends) {
        if end.failure().is_none() {
            // Every receive buffer is somewhere, and all room has come back.
            let core = iface.core().borrow();
            let found = core.receives.available();
            assert_eq!(found, core.receives.count(), "{trouble:?}");
            drop(core);
            assert!(end.has_room(1, 32_768), "{trouble:?}");
        } else {
            assert_eq!(send(end, 0, 8), Post::PeerGone, "{trouble:?}");
            assert!(end.peer_has_left() && end.has_arrived());
        }
    }
    let steps = fault::take_seen();
    let said = pair.ifaces[0].last_error().unwrap_or_default();
    assert!(!fault::disarm(), "{trouble:?} has not struck");
    let refused = fake::refuse_receive_posts(0, 0);
    assert!(refused == 0 || refused > 1000, "{trouble:?}: {refused} left");
    drop((more, pair));
    assert_eq!(fault::alive(), base, "{trouble:?} leaves something");
    RestartResult { seen, failures, lasted_ns: fake::now_ns() - began, steps, said }
}

fn assert_whole(trouble: Trouble) -> RestartResult {
    let outcome = ride_out(trouble);
    assert_eq!(outcome.failures, [None; 2], "{trouble:?}: {}", outcome.said);
    for seen in &outcome.seen {
        assert!(seen.iter().copied().eq(0..MESSAGES), "{trouble:?}: {seen:?}");
    }
    outcome
}

/// The next attempt goes well.
fn assert_soon(trouble: Trouble) {
    let lasted = assert_whole(trouble).lasted_ns;
    assert!(lasted < 250_000_000, "{trouble:?}: {lasted}");
}

fn assert_failed(trouble: Trouble, text: &str) {
    let outcome = ride_out(trouble);
    assert_eq!(outcome.failures, [Some(Failure::Local); 2], "{trouble:?}");
    let lasted = outcome.lasted_ns;
    let allowed = 10_000_000_000..11_000_000_000;
    assert!(allowed.contains(&lasted), "{trouble:?}: {lasted}");
    assert!(outcome.said.contains(text), "{trouble:?}: {}", outcome.said);
}

const STEPS: [(VerbsCall, &str); 6] = [
    (VerbsCall::ModifyError, "stopping the queue pair"),
    (VerbsCall::ModifyReset, "starting the queue pair anew"),
    (VerbsCall::ModifyInit, "initialising"),
    (VerbsCall::ModifyRtr, "ready to receive"),
    (VerbsCall::ModifyRts, "ready to send"),
    (VerbsCall::QueryPort, "is down"),
];

#[test]
fn restart__goes_on_after_any_step_that_failed_once() {
    let steps = assert_whole(Trouble::Nothing).steps;
    for (step, _) in STEPS {
        assert!(steps.contains(&step), "{step:?} is no step of it");
        let times = steps.iter().filter(|&&seen| seen == step).count() as u32;
        for after in 0..times {
            assert_soon(Trouble::Once(step, after));
        }
    }
}

#[test]
fn restart__goes_on_after_receive_buffers_were_refused() {
    // Some of them, or all, by one of both, again and again.
    for after in 0..24 {
        assert_soon(Trouble::Receives(after, 1));
    }
    assert_whole(Trouble::Receives(5, 60));
}

#[test]
fn restart__that_fails_for_good_ends_in_errors() {
    for (step, text) in STEPS {
        assert_failed(Trouble::Always(step), text);
    }
    assert_failed(Trouble::Receives(3, u64::MAX), "posting a receive");
}
