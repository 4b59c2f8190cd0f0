//! Bounded spin loops used before a blocking wait.

use fastpath_base::sync::spin_loop;

const POLLS_PER_CHECK: u32 = 64;
/// Number of attempts to take a lock that is held only briefly.
const TRIES: u32 = 64;

/// Polls at most `polls` times, and returns the first result of `poll`, which gets the number of the poll. Returns
/// `None` early if `is_needed`, called at intervals, reports that other work needs this process.
// Inlined, so that each use is a loop of its own: `fastpath bench instructions` counts MPI_Recv and MPI_Barrier.
#[inline(always)]
pub fn spin<T>(
    polls: u32, mut poll: impl FnMut(u32) -> Option<T>, mut is_needed: impl FnMut() -> bool,
) -> Option<T> {
    let mut count = 0;
    // Not an inclusive range, which would test a flag in each turn.
    while count < polls {
        count += 1;
        if let Some(found) = poll(count) {
            return Some(found);
        }
        if count % POLLS_PER_CHECK == 0 && is_needed() {
            break;
        }
    }
    None
}

/// Returns whether one of a few attempts succeeds.
#[inline]
pub fn try_briefly(mut attempt: impl FnMut() -> bool) -> bool {
    for _ in 0..TRIES {
        if attempt() {
            return true;
        }
        spin_loop();
    }
    false
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn spin__returns_what_a_poll_finds_and_polls_no_more() {
        let found = spin(100, |count| (count == 70).then_some(count), || false);
        assert_eq!(found, Some(70));
        let (mut polls, mut checks) = (0, 0);
        let nothing = |count| {
            polls = count;
            None::<()>
        };
        let check = || {
            checks += 1;
            false
        };
        assert_eq!(spin(2 * POLLS_PER_CHECK + 1, nothing, check), None);
        assert_eq!((polls, checks), (2 * POLLS_PER_CHECK + 1, 2));
    }

    #[test]
    fn spin__stops_at_the_check_that_says_so() {
        let (mut polls, mut checks) = (0, 0);
        let nothing = |count| {
            polls = count;
            None::<()>
        };
        let second = || {
            checks += 1;
            checks == 2
        };
        assert_eq!(spin(1000, nothing, second), None);
        assert_eq!(polls, 2 * POLLS_PER_CHECK);
    }

    #[test]
    fn try_briefly__tries_until_it_succeeds_or_gives_up() {
        let mut tries = 0;
        let third = || {
            tries += 1;
            tries == 3
        };
        assert!(try_briefly(third));
        assert_eq!(tries, 3);
        tries = 0;
        let never = || {
            tries += 1;
            false
        };
        assert!(!try_briefly(never));
        assert_eq!(tries, TRIES);
    }
}
