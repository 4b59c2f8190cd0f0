use super::*;
use proptest::prelude::*;

/// Sends `messages`; the receiver's verdict on the fetch with this number comes from `says`. Returns how many were
/// fetched.
fn send(habit: &mut Habit, messages: u32, mut says: impl FnMut(u32, bool) -> Verdict) -> u32 {
    let mut fetched = 0;
    for _ in 0..messages {
        if let Way::Fetched { timed } = habit.choose() {
            fetched += 1;
            habit.note(says(fetched, timed));
        }
    }
    fetched
}

/// A receiver that finds the message in its cache, but for the first time.
fn warm(fetch: u32, timed: bool) -> Verdict {
    match (fetch, timed) {
        (1, true) => Verdict::Slower,
        (_, true) => Verdict::Faster,
        (_, false) => Verdict::Untimed,
    }
}

#[test]
fn habit__begins_with_parts_and_tries_a_fetch_soon() {
    let mut habit = Habit::default();
    assert_eq!(send(&mut habit, GAP_FIRST as u32, warm), 0);
    assert_eq!(habit.choose(), Way::Fetched { timed: true });
}

#[test]
fn habit__stays_with_what_is_faster_and_asks_for_the_time_now_and_then() {
    let mut habit = Habit::default();
    send(&mut habit, GAP_FIRST as u32, warm);
    let mut timed = 0;
    let fetched = send(&mut habit, 1000, |fetch, asked| {
        timed += asked as u32;
        warm(fetch, asked)
    });
    assert_eq!(fetched, 1000);
    assert_eq!(timed, 2 + 998 / TIMED as u32);
}

#[test]
fn habit__measures_the_parts_anew_and_comes_back() {
    let mut habit = Habit::default();
    let rounds = 10 * RENEWAL as u32;
    let fetched = send(&mut habit, rounds, warm);
    assert!(fetched > rounds - rounds / 50 && fetched < rounds - 9 * GAP_FIRST as u32);
}

#[test]
fn habit__tries_ever_less_where_fetches_are_slower() {
    let mut habit = Habit::default();
    let slower = |_, _| Verdict::Slower;
    send(&mut habit, 10_000, slower);
    let fetched = send(&mut habit, 1_000_000, slower);
    let gap = (GAP_FIRST as u32) << DOUBLINGS;
    assert_eq!(gap, 2048);
    assert!(fetched <= TRIAL as u32 * (1_000_000 / (gap + TRIAL as u32) + 1));
    assert!(fetched >= TRIAL as u32 * (1_000_000 / (gap + TRIAL as u32) - 1));
}

#[test]
fn habit__proves_nothing_by_the_first_fetch_of_a_trial() {
    let mut habit = Habit::default();
    // A message that is changed after each second one: warm at first, cold when it counts.
    let fetched = send(&mut habit, 16 + 3, |fetch, _| match fetch {
        1 => Verdict::Faster,
        _ => Verdict::Slower,
    });
    assert_eq!(fetched, 3);
    assert_eq!(habit.choose(), Way::Parts);
}

#[test]
fn habit__ends_a_trial_early_where_nobody_waits() {
    let mut habit = Habit::default();
    assert_eq!(send(&mut habit, 40, |_, _| Verdict::Late), 2);
}

#[test]
fn habit__goes_back_to_parts_when_the_program_changes() {
    let mut habit = Habit::default();
    send(&mut habit, 500, warm);
    let slow = send(&mut habit, 500, |_, timed| match timed {
        true => Verdict::Slower,
        false => Verdict::Untimed,
    });
    // Up to `TIMED` until it is noticed, those that confirm it, and the trials that follow.
    assert!(slow <= (TIMED as u32 + 1) + 6 * TRIAL as u32, "{slow}");
    // And to fetches when it changes again.
    send(&mut habit, 900, warm);
    assert_eq!(send(&mut habit, 100, |_, _| Verdict::Even), 100);
}

#[test]
fn habit__forgives_one_slow_fetch() {
    let mut habit = Habit::default();
    send(&mut habit, 100, warm);
    let fetched = send(&mut habit, 900, |fetch, timed| match timed {
        true if fetch % 16 == 0 => Verdict::Slower,
        true => Verdict::Faster,
        false => Verdict::Untimed,
    });
    assert_eq!(fetched, 900);
}

#[test]
fn pace__judges_by_what_parts_took() {
    let mut pace = Pace::default();
    assert_eq!(pace.judge(16384, 1), Verdict::Even);
    // 2304 ns, and an eighth more for half of one of four parts: 2592.
    pace.note(16384, 4096, 2304);
    assert_eq!(pace.judge(16384, 2200), Verdict::Faster);
    assert_eq!(pace.judge(16384, 2500), Verdict::Even);
    assert_eq!(pace.judge(16384, 2650), Verdict::Slower);
    assert_eq!(pace.judge(32768, 4400), Verdict::Faster);
}

#[test]
fn pace__follows_what_lasts_and_hardly_what_was_disturbed() {
    let mut pace = Pace::default();
    pace.note(16384, 0, 2000);
    pace.note(16384, 0, 1_000_000);
    assert_eq!(pace.judge(16384, 2700), Verdict::Slower);
    pace.note(16384, 0, 1);
    assert_eq!(pace.judge(16384, 1600), Verdict::Faster);
    (0..8).for_each(|_| pace.note(16384, 0, 1000));
    assert_eq!(pace.judge(16384, 1100), Verdict::Slower);
    assert_eq!(pace.judge(16384, 800), Verdict::Faster);
}

#[test]
fn pace__times_one_of_eight() {
    let mut pace = Pace::default();
    let due = (0..80).filter(|_| pace.is_due()).count();
    assert_eq!(due, 10);
}

#[test]
fn class__parts_the_sizes_by_octaves() {
    let classes = [12288, 24575, 24576, 32768].map(class);
    assert_eq!(classes, [0, 0, 1, 1]);
}

proptest! {
    /// Whatever receivers say: a trial comes within its gap, and without an encouraging word none is longer than it may be.
    #[test]
    fn habit__never_forgets_to_try_nor_fetches_without_reason(says in prop::collection::vec(0_u32..7, 1..4000)) {
        let mut habit = Habit::default();
        let (mut parts, mut unasked) = (0, 0);
        for number in says {
            match habit.choose() {
                Way::Parts => {
                    parts += 1;
                    unasked = 0;
                    prop_assert!(parts <= (GAP_FIRST as u32) << DOUBLINGS);
                }
                Way::Fetched { timed } => {
                    parts = 0;
                    unasked = if timed { 0 } else { unasked + 1 };
                    prop_assert!(unasked < TIMED);
                    habit.note(if timed { Verdict::of(number) } else { Verdict::Untimed });
                }
            }
        }
    }

    /// A pace is never further from what was measured than the extremes of it.
    #[test]
    fn pace__stays_within_what_was_measured(times in prop::collection::vec(100_u64..100_000, 1..50)) {
        let mut pace = Pace::default();
        times.iter().for_each(|&ns| pace.note(8192, 0, ns));
        let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        prop_assert_eq!(pace.judge(8192, most + most / 4 + 10), Verdict::Slower);
        prop_assert_ne!(pace.judge(8192, least - least / 4), Verdict::Slower);
    }
}
