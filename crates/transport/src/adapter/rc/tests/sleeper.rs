//! A rank that sleeps until its adapter wakes it.

use super::*;

#[test]
fn sleeper__is_woken_by_what_comes() {
    let mut pair = RcPair::new(Settings::default());
    let word: &AtomicU32 = Box::leak(Box::new(AtomicU32::new(1)));
    for number in 0..3 {
        word.store(1, Ordering::Relaxed);
        let wake = || {
            word.store(0, Ordering::Relaxed);
            futex_wake(word, 1);
        };
        assert_eq!(pair.ifaces[1].arm(wake), Duration::from_secs(1));
        assert_eq!(send(&mut pair.ends[0], number, 8), Post::Done);
        let start = Instant::now();
        while word.load(Ordering::Relaxed) == 1 {
            // The fake adapter works during polls.
            pair.ifaces[0].progress();
            futex_wait(word, 1, Some(Duration::from_millis(1)));
            assert!(start.elapsed() < WATCHDOG, "no sleeper was woken");
        }
        let seen = std::iter::repeat_with(|| take(&mut pair.ends[1])).find_map(|seen| seen);
        assert_eq!(seen, Some((number, 8)));
    }
}

#[test]
fn sleeper__does_not_sleep_on_a_failure_that_is_there() {
    let context = fake::open();
    fake::set_conditions(fake::Conditions::default());
    let mut pair = RcPair::on(&context, quick()).unwrap();
    assert_eq!(send(&mut pair.ends[0], 0, 8), Post::Done);
    fake::remove_device();
    assert_ne!(pair.ifaces[0].arm(|| ()), Duration::from_secs(1));
    assert!(pair.ends[0].failure().is_some());
}
