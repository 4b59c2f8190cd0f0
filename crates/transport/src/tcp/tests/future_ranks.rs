//! Connections of spawned ranks whose hello arrives before this host's launcher has added the rank.

use super::*;

/// Rounds of progress in which a hello arrives over the loopback device, and would be refused.
const ROUNDS: u32 = 10_000;

/// Makes three ranks, and hides the last one, as if this host's launcher had not added it yet.
fn make_hidden_third() -> Vec<&'static Job> {
    let jobs = make_jobs(3);
    jobs[0].header().present.store(2, Ordering::Relaxed);
    jobs
}

fn show_third(jobs: &[&'static Job]) {
    jobs[0].header().present.store(3, Ordering::Release);
}

#[test]
fn future_rank__is_answered_once_it_is_added() {
    let jobs = make_hidden_third();
    let mut second = make_iface(jobs[1], Settings::default());
    let mut third = make_iface(jobs[2], Settings::default());
    let mut end = third.endpoint(1);
    end.connect();
    for _ in 0..ROUNDS {
        second.progress();
        third.progress();
    }
    assert_eq!(end.failure(), None, "the rank is there");
    assert_eq!((third.counters().failed, second.counters().strangers), (0, 0));
    let nap = {
        let mut core = second.core().borrow_mut();
        assert!(core.callers.has_future_rank());
        core.nap()
    };
    assert!(nap.is_some_and(|nap| nap < Duration::from_millis(100)), "a sleeping rank looks again");
    show_third(&jobs);
    let accepted = second.endpoint(2);
    until(&mut [&mut second, &mut third], "a connection", || {
        end.link().is_up() && accepted.link().is_up()
    });
}

#[test]
fn future_rank__that_is_never_added_is_closed_in_time() {
    let jobs = make_hidden_third();
    let settings = Settings { stranger_ns: 1_000_000, ..Settings::default() };
    let mut second = make_iface(jobs[1], settings);
    let pass = Pass { job_id: jobs[0].job_id(), secret: jobs[0].secret() };
    for then in [&[][..], b"x"] {
        let mut caller = dial(jobs[1]);
        caller.write_all(&pass.hello(2, 1, draw_nonce().unwrap())).unwrap();
        caller.write_all(then).unwrap();
        until(&mut [&mut second], "it to be closed", || is_closed(&mut caller));
    }
    assert_eq!(second.counters().strangers, 2);
}
