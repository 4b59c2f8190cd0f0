//! Restarts of a stopped queue pair, while one step of the restart fails once or always.

use super::*;

/// Number of messages that each end sends before and during an outage.
const MESSAGES: u32 = 60;
/// Simulated nanoseconds between two checks.
const STEP_NS: u64 = 20_000_000;

fn set_port(active: bool) {
    fake::set_conditions(fake::Conditions {
        active,
        sends_stop_alone: true,
        ..fake::Conditions::default()
    });
}

/// Fault injected in an outage.
#[derive(Debug, Clone, Copy)]
enum InjectedFault {
    Nothing,
    /// The step fails once, after the given number of calls.
    Once(VerbsCall, u32),
    /// The step always fails.
    Always(VerbsCall),
    /// Posts of receive buffers fail. The first number counts the posts that succeed before, the second the failures.
    Receives(u64, u64),
}

struct RestartResult {
    seen: [Vec<u32>; 2],
    failures: [Option<Failure>; 2],
    lasted_ns: u64,
    steps: Vec<VerbsCall>,
    said: String,
}

/// Both ends send while the port is down for a moment; returns when all has arrived, or an end has failed.
fn ride_out(trouble: InjectedFault) -> RestartResult {
    let base = fault::alive();
    let mut pair = UdPair::fake(Settings::default());
    set_port(false);
    let began = fake::now_ns();
    fault::take_seen();
    match trouble {
        InjectedFault::Nothing => {}
        InjectedFault::Once(step, after) => fault::arm(step, after, libc::EBUSY),
        InjectedFault::Always(step) => fault::end(step, libc::EBUSY),
        InjectedFault::Receives(after, count) => _ = fake::refuse_receive_posts(after, count),
    }
    let (mut sent, mut seen) = ([0; 2], [vec![], vec![]]);
    let mut more = Vec::new();
    let failures = loop {
        for me in 0..2 {
            // Send a few messages each time, so that some are sent in every state. Send more at first than one poll
            // takes.
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
        // Connections created meanwhile add receive buffers.
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
            // No receive buffer is lost, and all places for sends are free again.
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

fn assert_whole(trouble: InjectedFault) -> RestartResult {
    let outcome = ride_out(trouble);
    assert_eq!(outcome.failures, [None; 2], "{trouble:?}: {}", outcome.said);
    for seen in &outcome.seen {
        assert!(seen.iter().copied().eq(0..MESSAGES), "{trouble:?}: {seen:?}");
    }
    outcome
}

/// Asserts that the next restart attempt succeeds.
fn assert_soon(trouble: InjectedFault) {
    let lasted = assert_whole(trouble).lasted_ns;
    assert!(lasted < 250_000_000, "{trouble:?}: {lasted}");
}

fn assert_failed(trouble: InjectedFault, text: &str) {
    let outcome = ride_out(trouble);
    assert_eq!(outcome.failures, [Some(Failure::Local); 2], "{trouble:?}");
    let lasted = outcome.lasted_ns;
    let allowed = 10_000_000_000..11_000_000_000;
    assert!(allowed.contains(&lasted), "{trouble:?}: {lasted}");
    assert!(outcome.said.contains(text), "{trouble:?}: {}", outcome.said);
}

const STEPS: [(VerbsCall, &str); 6] = [
    (VerbsCall::ModifyError, "stopping the queue pair"),
    (VerbsCall::ModifyReset, "restarting the queue pair"),
    (VerbsCall::ModifyInit, "initialising"),
    (VerbsCall::ModifyRtr, "ready to receive"),
    (VerbsCall::ModifyRts, "ready to send"),
    (VerbsCall::QueryPort, "down and unusable"),
];

#[test]
fn restart__goes_on_after_any_step_that_failed_once() {
    let steps = assert_whole(InjectedFault::Nothing).steps;
    for (step, _) in STEPS {
        assert!(steps.contains(&step), "{step:?} is no step of it");
        let times = steps.iter().filter(|&&seen| seen == step).count() as u32;
        for after in 0..times {
            assert_soon(InjectedFault::Once(step, after));
        }
    }
}

#[test]
fn restart__goes_on_after_receive_buffers_were_refused() {
    // Posting fails for some or all buffers, at one end or both, repeatedly.
    for after in 0..24 {
        assert_soon(InjectedFault::Receives(after, 1));
    }
    assert_whole(InjectedFault::Receives(5, 60));
}

#[test]
fn restart__that_fails_for_good_ends_in_errors() {
    for (step, text) in STEPS {
        assert_failed(InjectedFault::Always(step), text);
    }
    assert_failed(InjectedFault::Receives(3, u64::MAX), "posting a receive");
}
