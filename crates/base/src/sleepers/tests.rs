//! Choice of the sleeper to wake.
#![allow(non_snake_case)]

use super::*;

/// Makes sleepers that await 1, 2, ...; the first one leads.
fn asleep(count: u32) -> (Sleepers<u32>, Vec<WakeSlot>) {
    let mut sleepers = Sleepers::default();
    let slots = (1..=count).map(|awaits| sleepers.register(awaits)).collect();
    (sleepers, slots)
}

fn is_rung(slot: &WakeSlot) -> bool {
    slot.bell().expect("a bell").load(Ordering::Relaxed) == RUNG
}

/// Wakes the sleepers that await one of `due`. Returns whether the leader was woken.
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
    let (mut sleepers, slots) = asleep(4);
    assert!(slots[0].leads() && slots[1..].iter().all(|slot| !slot.leads()));
    assert!(!wake(&mut sleepers, &[3]));
    assert_eq!([1, 2, 3].map(|i| is_rung(&slots[i])), [false, true, false]);
    assert_eq!(sleepers.count(), 3);
    assert!(wake(&mut sleepers, &[1, 4]));
    assert_eq!([1, 2, 3].map(|i| is_rung(&slots[i])), [false, true, true]);
    assert_eq!(sleepers.count(), 1);
}

#[test]
fn word__stays_taken_until_the_woken_leader_is_back() {
    let (mut sleepers, slots) = asleep(1);
    assert!(wake(&mut sleepers, &[1]) && sleepers.is_led);
    let other = sleepers.register(2);
    assert!(!other.leads());
    sleepers.unregister(&slots[0]);
    assert!(!sleepers.is_led && sleepers.count() == 1);
    assert!(sleepers.register(1).leads());
}

#[test]
fn unregister__counts_once_whether_woken_here_or_by_a_peer() {
    let (mut sleepers, slots) = asleep(3);
    wake(&mut sleepers, &[2]);
    for (slot, left) in slots.iter().zip([1, 1, 0]) {
        sleepers.unregister(slot);
        assert_eq!(sleepers.count(), left);
    }
    assert!(!sleepers.is_led);
}

#[test]
fn hand_on__without_leader__wakes_the_longest_asleep() {
    let (mut sleepers, slots) = asleep(3);
    sleepers.unregister(&slots[0]);
    assert!(!hand_on(&mut sleepers, false));
    assert!(is_rung(&slots[1]) && !is_rung(&slots[2]));
}

#[test]
fn hand_on__leaves_a_leader_asleep_unless_there_is_something_to_look_for() {
    let (mut sleepers, slots) = asleep(2);
    assert!(!hand_on(&mut sleepers, false) && sleepers.count() == 2);
    assert!(hand_on(&mut sleepers, true) && sleepers.count() == 1);
    assert!(!is_rung(&slots[1]));
    // The leader was woken and has not returned.
    assert!(!hand_on(&mut sleepers, true));
    assert_eq!(sleepers.count(), 1);
}

#[test]
fn wake_followers__leaves_the_leader_asleep() {
    let (mut sleepers, slots) = asleep(3);
    sleepers.wake_followers(|&awaits| awaits != 3);
    assert!(is_rung(&slots[1]) && !is_rung(&slots[2]));
    assert_eq!(sleepers.count(), 2);
}
