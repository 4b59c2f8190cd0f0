//! `MPI_Win_lock_all` (MPI 5.0, section 12.5.3), and how it excludes ranks that lock a single rank.
//!
//! A window that no rank locks exclusively needs no lock. So `MPI_Win_lock_all` only counts the rank, by one operation
//! on a word of its own host ([`Sharers`]). Before its first exclusive lock, a rank announces on every host that it
//! locks exclusively. It then waits until no rank is counted there. After such an announcement, `MPI_Win_lock_all`
//! takes the shared locks of all ranks, in rank order.
//!
//! A rank in an `MPI_Win_lock_all` epoch never waits for a lock later, since it has all locks from the beginning. So
//! there is no deadlock between such ranks and ranks that lock several ranks exclusively, in rank order.
#![allow(unsafe_code)]

use super::control::{SHARERS, Words};
use super::counts::RmaCounter;
use super::epoch::Sharing;
use super::error;
use super::lock::{
    check_assertion, complete_all, complete_pending, give, leave_fence, note, refuse, serve, take,
};
use super::window::Window;
use super::{hot, hot_lock};
use crate::common::consts::MPI_MODE_NOCHECK;
use crate::common::error::Result;
use crate::process::Process;
use fastpath_base::sync::{AtomicU64, Ordering};
use fastpath_base::trace::Point;
use std::collections::HashSet;

/// Word of a host with two counts: ranks in `MPI_Win_lock_all` without locks, and ranks that announced exclusive locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Sharers(u64);

impl Sharers {
    /// Addends to the word: enter the count, leave the count, and announce an exclusive lock.
    const ENTER: u64 = 1;
    const LEAVE: u64 = 1_u64.wrapping_neg();
    const ANNOUNCE: u64 = 1 << 32;

    fn is_contested(self) -> bool {
        self.0 >> 32 != 0
    }

    fn is_empty(self) -> bool {
        self.0 as u32 == 0
    }
}

/// `MPI_Win_lock_all`. Errors: `MPI_ERR_ASSERT`, and `MPI_ERR_RMA_SYNC` if another epoch is open.
pub fn lock_all(p: &Process, window: &Window, assertion: i32) -> Result {
    check_assertion(assertion, MPI_MODE_NOCHECK)?;
    error::refuse_broken(window)?;
    let may = window.epoch.borrow().may_lock(None);
    refuse(window, None, may)?;
    leave_fence(window);
    let sharing = match assertion & MPI_MODE_NOCHECK {
        0 if enter(p, window)? => Sharing::Counted,
        0 => {
            take_locks(p, window)?;
            Sharing::Locks
        }
        _ => Sharing::Unchecked,
    };
    window.epoch.borrow_mut().lock_all(sharing);
    window.counts.add(RmaCounter::Epochs);
    window.record(Point::EpochBegins, 0, 0);
    window.open_again();
    Ok(())
}

/// `MPI_Win_unlock_all`. Errors: `MPI_ERR_RMA_SYNC` without `MPI_Win_lock_all`, and those of pending operations.
pub fn unlock_all(p: &Process, window: &Window) -> Result {
    let sharing = window.epoch.borrow().may_unlock_all();
    refuse(window, None, sharing.map(drop))?;
    window.close_for_now();
    // No fence is needed if locks or a count are released: the release makes all writes visible to the next holder.
    let done = match sharing {
        Ok(Sharing::Unchecked) => complete_all(p, window),
        _ => complete_pending(p, window),
    };
    let left = match sharing {
        Ok(Sharing::Counted) => leave(p, window),
        _ => give_locks(p, window),
    };
    window.epoch.borrow_mut().unlock_all();
    window.record(Point::EpochEnds, 0, 0);
    done.and(left).and_then(|()| serve(p, window))
}

/// Immediate path of `MPI_Win_lock_all`. Returns false, without effect, if a rank locks the window exclusively or this
/// host's word was not used before.
#[inline]
pub fn try_lock_all<const WAY: u8>(assertion: i32, win: usize) -> bool {
    let Some((window, home, word)) = find::<WAY>(win).filter(|_| assertion == 0) else {
        return false;
    };
    let Ok(mut epoch) = window.epoch.try_borrow_mut() else {
        return false;
    };
    if window.contested.get() || epoch.is_fenced() || epoch.may_lock(None).is_err() {
        return false;
    }
    // ORDERING: acquire and release, pairs with other ranks' operations on this word. A rank that counts itself or
    // locks later sees earlier writes to the window.
    if Sharers(word.fetch_add(Sharers::ENTER, Ordering::AcqRel)).is_contested() {
        window.contested.set(true);
        // ORDERING: acquire and release, pairs with other ranks' operations on this word.
        word.fetch_add(Sharers::LEAVE, Ordering::AcqRel);
        return false;
    }
    hot_lock::note::<WAY>(window, home, true);
    epoch.lock_all(Sharing::Counted);
    window.counts.add(RmaCounter::Epochs);
    window.open_again();
    true
}

/// Immediate path of `MPI_Win_unlock_all`. Returns false unless the epoch is counted and no operation is pending.
#[inline]
pub fn try_unlock_all<const WAY: u8>(win: usize) -> bool {
    let Some((window, home, word)) = find::<WAY>(win) else {
        return false;
    };
    let Ok(mut epoch) = window.epoch.try_borrow_mut() else {
        return false;
    };
    if epoch.may_unlock_all() != Ok(Sharing::Counted) || !window.pending.borrow().is_empty() {
        return false;
    }
    window.close_for_now();
    hot_lock::note::<WAY>(window, home, false);
    // ORDERING: acquire and release, pairs with other ranks' operations on this word.
    word.fetch_add(Sharers::LEAVE, Ordering::AcqRel);
    epoch.unlock_all();
    true
}

/// Returns a window of the hot table, this host's first rank, and that rank's sharers word; `None` if one is unknown.
#[inline]
fn find<const WAY: u8>(win: usize) -> Option<(&'static Window, u32, &'static AtomicU64)> {
    let window = hot::lockable::<WAY>(win)?;
    let home = *window.home.get()?;
    Some((window, home, window.known(home)?.control.near(SHARERS)?))
}

/// Counts this rank as being in `MPI_Win_lock_all`. Returns false if a rank locks exclusively.
fn enter(p: &Process, window: &Window) -> Result<bool> {
    if !window.contested.get() {
        let (home, words) = home(p, window)?;
        let seen = Sharers(words.add(SHARERS, Sharers::ENTER)?);
        if !seen.is_contested() {
            note(p, window, home, true)?;
            return Ok(true);
        }
        words.add(SHARERS, Sharers::LEAVE)?;
        window.contested.set(true);
    }
    Ok(false)
}

fn leave(p: &Process, window: &Window) -> Result {
    let (home, words) = home(p, window)?;
    note(p, window, home, false)?;
    words.add(SHARERS, Sharers::LEAVE).map(drop)
}

/// Ends a counted epoch of a finalizing process, unless ending it needs another process, which may have ended.
pub(super) fn end_left(p: &Process, window: &Window) {
    if window.epoch.borrow().may_unlock_all() == Ok(Sharing::Counted)
        && home(p, window).is_ok_and(|(_, words)| words.near(SHARERS).is_some())
    {
        // The epoch's operations are completed as far as possible.
        _ = unlock_all(p, window);
    }
}

/// Takes the shared locks of all ranks in rank order. If one lock fails, releases the locks already taken.
fn take_locks(p: &Process, window: &Window) -> Result {
    for rank in 0..window.size() {
        if let Err(error) = take(p, window, rank, false) {
            // The error of the failed lock is more useful than an error of the release.
            let _ = give_locks(p, window);
            window.epoch.borrow_mut().unlock_all();
            return Err(error);
        }
        window.epoch.borrow_mut().note_shared(rank);
    }
    Ok(())
}

fn give_locks(p: &Process, window: &Window) -> Result {
    let held = window.epoch.borrow().locked();
    held.into_iter().try_for_each(|rank| give(p, window, rank, false))
}

/// Announces on every host that this rank locks exclusively, and waits until no rank is in `MPI_Win_lock_all` without
/// locks.
#[cold]
#[inline(never)]
pub(super) fn announce(p: &Process, window: &Window) -> Result {
    let homes = homes(p, window)?;
    for &rank in &homes {
        Words::of(p, window, rank)?.add(SHARERS, Sharers::ANNOUNCE)?;
    }
    for &rank in &homes {
        Words::of(p, window, rank)?.poll_word(SHARERS, |word| Sharers(word).is_empty())?;
    }
    window.announced.set(true);
    Ok(())
}

/// Returns the first rank of this host, and its control words.
fn home<'a>(p: &'a Process, window: &'a Window) -> Result<(u32, Words<'a>)> {
    let rank = match window.home.get() {
        Some(&rank) => rank,
        None => {
            let hosts = hosts(p, window)?;
            let own = hosts[window.rank as usize];
            let first = hosts.iter().position(|&host| host == own).unwrap_or(0);
            *window.home.get_or_init(|| first as u32)
        }
    };
    Ok((rank, Words::of(p, window, rank)?))
}

fn homes(p: &Process, window: &Window) -> Result<Vec<u32>> {
    let mut seen = HashSet::new();
    let ranks = (0..).zip(hosts(p, window)?);
    Ok(ranks.filter(|&(_, host)| seen.insert(host)).map(|(rank, _)| rank).collect())
}

/// Returns the host of each rank. All ranks compute equal lists.
fn hosts(p: &Process, window: &Window) -> Result<Vec<u32>> {
    // SAFETY: the worker lives while MPI runs, and this call holds the lock.
    let job = unsafe { (*p.worker()?).job };
    let worlds = window.group.world_ranks().iter();
    Ok(worlds.map(|&world| job.host(world as usize)).collect())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::lock_word::{LockWord, Ticket};
    use super::*;
    use std::collections::VecDeque;

    /// A step of a rank in the model: one operation on one word.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    enum LockStep {
        Enter,
        Access,
        Uncount,
        Announce,
        AwaitNobody,
        Take(usize, bool),
        Await(usize, bool, Ticket),
        Press(usize, i8),
        Admit(usize),
        Give(usize, bool),
        /// Leaves a lock that was entered to give way.
        GiveWay(usize),
    }
    use LockStep::*;

    /// A rank in the model, with the steps that it has still to do and the locks that it holds.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct ModelRank {
        todo: VecDeque<LockStep>,
        holds: Vec<(usize, bool)>,
    }

    #[derive(Clone, PartialEq, Eq, Hash)]
    struct LockAllModel {
        locks: [u64; 2],
        pressed: [i8; 2],
        sharers: Sharers,
        ranks: Vec<ModelRank>,
    }

    impl LockAllModel {
        fn new(plans: &[&[LockStep]]) -> LockAllModel {
            let rank = |plan: &&[LockStep]| ModelRank {
                todo: plan.iter().copied().collect(),
                holds: Vec::new(),
            };
            LockAllModel {
                locks: [0; 2],
                pressed: [0; 2],
                sharers: Sharers(0),
                ranks: plans.iter().map(rank).collect(),
            }
        }

        fn after(&self, rank: usize) -> Option<LockAllModel> {
            let mut world = self.clone();
            let LockAllModel { locks, pressed, sharers, ranks } = &mut world;
            let rank = &mut ranks[rank];
            let mut further: Vec<LockStep> = Vec::new();
            match rank.todo.pop_front()? {
                Enter => {
                    let seen = *sharers;
                    sharers.0 += Sharers::ENTER;
                    further = match seen.is_contested() {
                        false => vec![Access, Uncount],
                        true => vec![
                            Uncount,
                            Take(0, false),
                            Take(1, false),
                            Access,
                            Give(0, false),
                            Give(1, false),
                        ],
                    };
                }
                Access => {}
                Uncount => sharers.0 = sharers.0.wrapping_add(Sharers::LEAVE),
                Announce => sharers.0 += Sharers::ANNOUNCE,
                AwaitNobody if !sharers.is_empty() => return None,
                AwaitNobody => {}
                Take(at, exclusive) => {
                    let (word, ticket, granted) = LockWord(locks[at]).request(exclusive);
                    locks[at] = word.0;
                    match (granted, exclusive) {
                        (true, _) => rank.holds.push((at, exclusive)),
                        (false, true) => further.push(Await(at, true, ticket)),
                        (false, false) => {
                            let presses = i8::from(!rank.holds.is_empty());
                            further = vec![
                                Press(at, presses),
                                Await(at, false, ticket),
                                Press(at, -presses),
                                Admit(at),
                            ];
                        }
                    }
                }
                Await(at, exclusive, ticket) => {
                    let word = LockWord(locks[at]);
                    if word.is_turn(ticket, exclusive) {
                        rank.holds.push((at, exclusive));
                    } else if exclusive && word.holds_up(ticket) && pressed[at] > 0 {
                        further = vec![Admit(at), GiveWay(at), Take(at, true)];
                    } else {
                        return None;
                    }
                }
                Press(at, by) => pressed[at] += by,
                Admit(at) => locks[at] = LockWord(locks[at]).admit().0,
                Give(at, exclusive) => {
                    rank.holds.retain(|held| *held != (at, exclusive));
                    locks[at] = LockWord(locks[at]).release(exclusive).0;
                }
                GiveWay(at) => locks[at] = LockWord(locks[at]).release(false).0,
            }
            for step in further.into_iter().rev() {
                rank.todo.push_front(step);
            }
            Some(world)
        }

        /// Returns whether a rank holds an exclusive lock on memory that another may access.
        fn is_wrong(&self) -> bool {
            let accesses = |rank: &ModelRank, at| {
                rank.todo.front() == Some(&Access) || rank.holds.iter().any(|held| held.0 == at)
            };
            (0..self.ranks.len()).any(|one| {
                let exclusive = self.ranks[one].holds.iter().filter(|held| held.1);
                exclusive.clone().any(|&(at, _)| {
                    let mut others = (0..self.ranks.len()).filter(|&other| other != one);
                    others.any(|other| accesses(&self.ranks[other], at))
                })
            })
        }
    }

    /// Explores every order of the ranks' steps. Returns the number of states, and whether all ranks wait in one of
    /// them.
    fn explore(plans: &[&[LockStep]]) -> (usize, bool) {
        let first = LockAllModel::new(plans);
        let (mut seen, mut open) = (HashSet::from([first.clone()]), vec![first]);
        let mut hangs = false;
        while let Some(world) = open.pop() {
            assert!(!world.is_wrong(), "two are inside");
            let next: Vec<LockAllModel> =
                (0..plans.len()).filter_map(|rank| world.after(rank)).collect();
            let is_over = world.ranks.iter().all(|rank| rank.todo.is_empty());
            if is_over {
                let free = world.locks.iter().all(|&word| LockWord(word).is_free());
                assert!(free && world.sharers.is_empty() && world.pressed == [0; 2]);
            }
            hangs |= next.is_empty() && !is_over;
            open.extend(next.into_iter().filter(|world| seen.insert(world.clone())));
        }
        (seen.len(), hangs)
    }

    const SHARER: &[LockStep] = &[Enter, Enter];
    const BOTH: &[LockStep] = &[
        Announce,
        AwaitNobody,
        Take(0, true),
        Take(1, true),
        Give(1, true),
        Give(0, true),
        Take(0, true),
        Take(1, true),
        Give(0, true),
        Give(1, true),
    ];
    const fn one(at: usize) -> [LockStep; 4] {
        [Announce, AwaitNobody, Take(at, true), Give(at, true)]
    }
    const FIRST: &[LockStep] = &one(0);
    const SECOND: &[LockStep] = &one(1);

    #[test]
    fn lock_all__and_exclusive_locks_of_several_ranks_never_wait_for_each_other_for_ever() {
        let cases: [&[&[LockStep]]; 4] = [
            &[BOTH, SHARER],
            &[BOTH, SHARER, SHARER],
            &[BOTH, BOTH, SHARER],
            &[BOTH, FIRST, SECOND, SHARER],
        ];
        for plans in cases {
            let (worlds, hangs) = explore(plans);
            assert!(worlds > 100 && !hangs, "{worlds}");
        }
    }

    #[test]
    fn lock_all__of_locks_at_the_first_access_would_hang() {
        const LAZY: &[LockStep] =
            &[Take(1, false), Take(0, false), Access, Give(0, false), Give(1, false)];
        assert!(explore(&[BOTH, LAZY]).1);
    }
}
