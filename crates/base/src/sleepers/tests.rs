//! Who is woken.
#![allow(non_snake_case)]

use super::*;

/// Sleepers that await 1, 2, ... and their beds; the first one leads.
fn asleep(count: u32) -> (Sleepers<u32>, Vec<Bed>) {
    let mut sleepers = Sleepers::default();
    let beds = (1..=count).map(|awaits| sleepers.lie_down(awaits)).collect();
    (sleepers, beds)
}

fn is_rung(bed: &Bed) -> bool {
    bed.bell().expect("a bell").load(Ordering::Relaxed) == RUNG
}

/// Wakes those that await one of these; says whether the leader was woken.
fn wake(sleepers: &mut Sleepers<u32>, due: &[u32]) -> bool {
    let mut leader = false;
    sleepers.wake(|awaits| due.contains(awaits), || leader = true);
    leader
}

fn hand_on(sleepers: &mut Sleepers<u32>, looks: bool) -> bool {
    let mut leader = false;
    sleepers.hand_on(looks, || leader = true);
    leader
}

#[test]
fn wake__rings_for_those_alone_that_are_due() {
    let (mut sleepers, beds) = asleep(4);
    assert!(beds[0].leads() && beds[1..].iter().all(|bed| !bed.leads()));
    assert!(!wake(&mut sleepers, &[3]));
    assert_eq!([1, 2, 3].map(|i| is_rung(&beds[i])), [false, true, false]);
    assert_eq!(sleepers.count(), 3);
    assert!(wake(&mut sleepers, &[1, 4]));
    assert_eq!([1, 2, 3].map(|i| is_rung(&beds[i])), [false, true, true]);
    assert_eq!(sleepers.count(), 1);
}

#[test]
fn word__stays_taken_until_the_woken_leader_is_back() {
    let (mut sleepers, beds) = asleep(1);
    assert!(wake(&mut sleepers, &[1]) && sleepers.is_led());
    let other = sleepers.lie_down(2);
    assert!(!other.leads());
    sleepers.get_up(&beds[0]);
    assert!(!sleepers.is_led() && sleepers.count() == 1);
    assert!(sleepers.lie_down(1).leads());
}

#[test]
fn get_up__counts_once_whether_woken_here_or_by_a_peer() {
    let (mut sleepers, beds) = asleep(3);
    wake(&mut sleepers, &[2]);
    for (bed, left) in beds.iter().zip([1, 1, 0]) {
        sleepers.get_up(bed);
        assert_eq!(sleepers.count(), left);
    }
    assert!(!sleepers.is_led());
}

#[test]
fn hand_on__wakes_the_longest_asleep_where_nobody_leads() {
    let (mut sleepers, beds) = asleep(3);
    sleepers.get_up(&beds[0]);
    assert!(!hand_on(&mut sleepers, false));
    assert!(is_rung(&beds[1]) && !is_rung(&beds[2]));
}

#[test]
fn hand_on__leaves_a_leader_asleep_unless_there_is_something_to_look_for() {
    let (mut sleepers, beds) = asleep(2);
    assert!(!hand_on(&mut sleepers, false) && sleepers.count() == 2);
    assert!(hand_on(&mut sleepers, true) && sleepers.count() == 1);
    assert!(!is_rung(&beds[1]));
    // It was woken, and is not back.
    assert!(!hand_on(&mut sleepers, true));
    assert_eq!(sleepers.count(), 1);
}

#[test]
fn wake_followers__leaves_the_leader_asleep() {
    let (mut sleepers, beds) = asleep(3);
    sleepers.wake_followers(|&awaits| awaits != 3);
    assert!(is_rung(&beds[1]) && !is_rung(&beds[2]));
    assert_eq!(sleepers.count(), 2);
}
