//! A recursive lock that costs plain instructions while one thread uses it: it is biased to that thread until another
//! one comes.
//!
//! ```text
//! biased thread                    another thread, which holds `word`
//! inside = 1                       bias = none
//! (compiler order only)            fence_own_threads()
//! bias still its own? go on        inside == 0? go on, else wait for it
//! ```
//!
//! It is the handshake of sleepers in [`crate::wait`]: the fence is paid by whoever comes second. Without a bias it is
//! a futex lock. A thread that wants in yields a few times, then sleeps; one that was woken [`PASSES`] times in vain is
//! handed the lock, before any thread that has not slept for it. A thread that was alone for long gets the bias if one
//! of two seats is free: whoever had it before has come again since, or has ended. What is long grows with what the
//! fence of the last revocation took, so that revocations take a bounded part of the time ("Biased locking", Russell
//! and Detlefs 2006).
//!
//! A thread that serves the others borrows the lock ([`Biased::borrow`]): whoever had the bias has it again afterwards.
#![allow(unsafe_code)]

use crate::sync::{AtomicU32, AtomicUsize, Ordering, compiler_fence, fence};
use crate::wait;

mod seat;
mod word;
use seat::Seat;
pub use word::PASSES;
use word::{FREE, YIELDS};

/// Entries of one thread alone after which it gets the bias, at least.
const ALONE: u32 = 256;
/// The same where the fence of the last revocation took so many nanoseconds more: a revocation then takes at most an
/// eighth of the time, since an entry with what it is for takes some 30 ns. Between threads that share a processor the
/// fence takes 400 ns, where it interrupts other processors 5 to 20 us.
const FENCE_NS_PER_ENTRY: u64 = 4;
/// Entries, at most: a thread that is stopped in a fence makes it look long.
const ALONE_MOST: u32 = 1 << 14;

/// No thread.
const NOBODY: usize = 0;
/// Stands beside the number of a thread that has the bias with its second seat.
const SECOND: usize = 1 << (usize::BITS - 1);

/// The first seat.
pub const FIRST_SEAT: u8 = 0;
/// The second one.
pub const SECOND_SEAT: u8 = 1;
/// No seat: by the ordinary lock, where no thread gets a bias ([`Biased::favour`]). Not where one may have it.
pub const BY_WORD: u8 = 2;

/// The lock. A thread is named by a number below [`SECOND`] that no other living thread has; it calls
/// [`Biased::forget`] before it ends.
///
/// There are two seats, since a thread that lost its bias may not come for long: it is stopped, or computes. With the
/// second one a call of MPI costs a few instructions more.
#[repr(C, align(64))]
pub struct Biased {
    /// The thread that enters without `word`, and whether its seat is the second one.
    bias: AtomicUsize,
    /// The number of the seat that it was given with last, or [`BY_WORD`].
    last_seat: AtomicUsize,
    first: Seat,
    /// Threads that try to get in.
    wanted: AtomicU32,
    second: Seat,
    word: AtomicU32,
    /// How deep the owner is inside by `word`.
    depth: AtomicU32,
    /// The thread that holds `word`.
    owner: AtomicUsize,
    /// The thread that held it last.
    last: AtomicUsize,
    /// Entries of that one since another thread came.
    streak: AtomicU32,
    /// So many give the bias.
    needed: AtomicU32,
    /// Releases since a thread last slept for the lock and got it, at which another one slept.
    passed: AtomicU32,
    revoked: AtomicU32,
    contended: AtomicU32,
    /// The thread that had the bias when the lock was borrowed.
    lender: AtomicUsize,
    /// Says whether the calling thread may have the bias, and sees to it that it calls [`Biased::forget`].
    may_bias: fn() -> bool,
}

macro_rules! make {
    ($may_bias:expr, $needed:expr) => {
        Biased {
            bias: AtomicUsize::new(NOBODY),
            last_seat: AtomicUsize::new(0),
            first: Seat::new(),
            wanted: AtomicU32::new(0),
            second: Seat::new(),
            word: AtomicU32::new(FREE),
            depth: AtomicU32::new(0),
            owner: AtomicUsize::new(NOBODY),
            last: AtomicUsize::new(NOBODY),
            streak: AtomicU32::new(0),
            needed: AtomicU32::new($needed),
            passed: AtomicU32::new(0),
            revoked: AtomicU32::new(0),
            contended: AtomicU32::new(0),
            lender: AtomicUsize::new(NOBODY),
            may_bias: $may_bias,
        }
    };
}

impl Biased {
    /// A free lock without a bias. `may_bias` says whether the calling thread may have it.
    #[cfg(not(feature = "loom"))]
    pub const fn new(may_bias: fn() -> bool) -> Self {
        make!(may_bias, ALONE)
    }

    /// As outside of the model, with so many entries for a bias.
    #[cfg(feature = "loom")]
    pub fn model(needed: u32) -> Self {
        make!(|| true, needed)
    }

    /// The seats, each with what stands beside the number of a thread that has the bias with it.
    fn seats(&self) -> [(&Seat, usize); 2] {
        [(&self.first, 0), (&self.second, SECOND)]
    }

    /// The same of one seat.
    #[inline(always)] // as `favours`
    fn seat<const SEAT: u8>(&self) -> (&Seat, usize) {
        match SEAT {
            FIRST_SEAT => (&self.first, 0),
            _ => (&self.second, SECOND),
        }
    }

    /// The number of the seat that the bias was given with last; [`BY_WORD`] where no thread gets one.
    #[inline(always)] // as `favours`
    pub fn last_seat(&self) -> usize {
        self.last_seat.load(Ordering::Relaxed)
    }

    /// The seat that a bias is for.
    fn seat_for(&self, bias: usize) -> &Seat {
        match bias & SECOND {
            0 => &self.first,
            _ => &self.second,
        }
    }

    /// Gives the bias to a thread that has none, before other threads use the lock, or to one that holds `word`.
    /// Without an expedited membarrier there is none, and every thread goes [`BY_WORD`].
    pub fn favour(&self, me: usize) {
        if !has_fence() {
            self.last_seat.store(BY_WORD.into(), Ordering::Relaxed);
            return;
        }
        for (seat, mark) in self.seats() {
            // ORDERING: acquire pairs with the release in `forget`.
            let insider = seat.insider.load(Ordering::Acquire);
            if (insider == NOBODY || insider == me) && (self.may_bias)() {
                seat.insider.store(me, Ordering::Relaxed);
                self.bias.store(me | mark, Ordering::Relaxed);
                self.last_seat.store(usize::from(mark != 0), Ordering::Relaxed);
                return;
            }
        }
    }

    /// Takes the bias from a thread that ends. It is not inside.
    pub fn forget(&self, me: usize) {
        for (seat, mark) in self.seats() {
            for (word, value) in [(&seat.insider, me), (&self.bias, me | mark)] {
                // ORDERING: release: what the thread did inside is seen by whoever finds no bias (`revoke`) and by
                // whoever takes its place (`favour`).
                let release = Ordering::Release;
                _ = word.compare_exchange(value, NOBODY, release, Ordering::Relaxed);
                // ORDERING: either this finds the bias that `give_back` returns, or that finds that the thread has
                // ended.
                fence(Ordering::SeqCst);
            }
        }
    }

    /// Enters by the bias, or does nothing and returns false. Left by [`Biased::release`].
    #[inline]
    pub fn try_enter(&self, me: usize) -> bool {
        match self.favours::<FIRST_SEAT>(me) {
            true => self.enter::<FIRST_SEAT>(me),
            false => self.favours::<SECOND_SEAT>(me) && self.enter_second(me),
        }
    }

    #[inline(never)]
    fn enter_second(&self, me: usize) -> bool {
        self.enter::<SECOND_SEAT>(me)
    }

    #[inline]
    fn enter<const SEAT: u8>(&self, me: usize) -> bool {
        let entered = self.step_in::<SEAT>(me);
        if !entered {
            self.back_out::<SEAT>();
        }
        entered
    }

    /// Whether the bias is this thread's, with that seat. What goes [`BY_WORD`] needs none.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
    pub fn favours<const SEAT: u8>(&self, me: usize) -> bool {
        SEAT == BY_WORD || self.bias.load(Ordering::Relaxed) == me | self.seat::<SEAT>().1
    }

    /// Enters by the bias with a seat, which was this thread's. If it returns false, the bias has gone meanwhile or the
    /// word is taken, and [`Biased::back_out`] is due.
    #[inline(always)] // as `favours`
    #[must_use]
    pub fn step_in<const SEAT: u8>(&self, me: usize) -> bool {
        if SEAT == BY_WORD {
            return self.enter_by_word(me);
        }
        let (seat, mark) = self.seat::<SEAT>();
        seat.step(1);
        // ORDERING: partner is the fence in `revoke`: either it sees `inside`, or this thread sees that the bias is
        // gone.
        compiler_fence(Ordering::SeqCst);
        // ORDERING: acquire, as every way in; the bias is this thread's own store.
        self.bias.load(Ordering::Acquire) == me | mark
    }

    /// See [`Biased::step_in`].
    #[cold]
    #[inline(never)]
    pub fn back_out<const SEAT: u8>(&self) {
        if SEAT != BY_WORD {
            self.seat::<SEAT>().0.step(-1);
            self.wake_others::<SEAT>();
        }
    }

    /// Leaves what [`Biased::step_in`] has entered; returns whether another thread has come, and
    /// [`Biased::wake_others`] is due.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
    #[must_use]
    pub fn leave<const SEAT: u8>(&self, me: usize) -> bool {
        if SEAT == BY_WORD {
            return !self.leave_by_word();
        }
        let (seat, mark) = self.seat::<SEAT>();
        self.leave_levels(seat, me | mark, 1)
    }

    #[inline(always)] // as `leave`
    fn leave_levels(&self, seat: &Seat, bias: usize, levels: u32) -> bool {
        seat.step(-(levels as i32));
        // ORDERING: partner is the fence in `revoke`: either it sees that nobody is inside, or this thread sees that
        // the bias is gone.
        compiler_fence(Ordering::SeqCst);
        self.bias.load(Ordering::Relaxed) != bias
    }

    /// Wakes the thread that has revoked the bias with a seat, which looks whether it may go on; [`BY_WORD`], leaves a
    /// lock that other threads sleep for.
    #[cold]
    #[inline(never)]
    pub fn wake_others<const SEAT: u8>(&self) {
        match SEAT {
            BY_WORD => self.release_word(),
            _ => self.seat::<SEAT>().0.wake_revoker(),
        }
    }

    /// Takes the lock; nests.
    #[inline]
    pub fn acquire(&self, me: usize) {
        if !self.try_enter(me) {
            self.acquire_slow(me);
        }
    }

    #[cold]
    #[inline(never)]
    fn acquire_slow(&self, me: usize) {
        if let Some((seat, _)) = self.seat_of(me) {
            // Its bias is gone since it is inside.
            seat.step(1);
        } else if self.owner.load(Ordering::Relaxed) == me {
            let depth = self.depth.load(Ordering::Relaxed);
            self.depth.store(depth + 1, Ordering::Relaxed);
        } else {
            self.take(me, 1);
        }
    }

    /// Gives up one level of nesting; nothing where the thread is not inside.
    #[inline]
    pub fn release(&self, me: usize) {
        if let Some((seat, mark)) = self.seat_of(me) {
            if self.leave_levels(seat, me | mark, 1) {
                seat.wake_revoker();
            }
        } else if self.owner.load(Ordering::Relaxed) == me {
            let depth = self.depth.load(Ordering::Relaxed) - 1;
            self.depth.store(depth, Ordering::Relaxed);
            if depth == 0 {
                self.owner.store(NOBODY, Ordering::Relaxed);
                self.release_word();
            }
        }
    }

    /// The seat with which the thread is inside by a bias, which may have been revoked since, and its mark.
    #[inline]
    fn seat_of(&self, me: usize) -> Option<(&Seat, usize)> {
        self.seats().into_iter().find(|(seat, _)| {
            // ORDERING: before `insider` is read; partner is the release in `step`. Only a thread itself writes its
            // number there, so that another one's entry is never taken for its own.
            seat.inside.load(Ordering::Acquire) != 0 && seat.insider.load(Ordering::Relaxed) == me
        })
    }

    /// Whether another thread tries to get in.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) != 0
    }

    /// Lets other threads in, at every level of nesting, while `pause` runs.
    pub fn release_lock<R>(&self, me: usize, pause: impl FnOnce() -> R) -> R {
        let mut levels = 0;
        if let Some((seat, mark)) = self.seat_of(me) {
            levels = seat.inside.load(Ordering::Relaxed);
            if self.leave_levels(seat, me | mark, levels) {
                seat.wake_revoker();
            }
        }
        if self.owner.load(Ordering::Relaxed) == me {
            levels += self.depth.load(Ordering::Relaxed);
            self.depth.store(0, Ordering::Relaxed);
            self.owner.store(NOBODY, Ordering::Relaxed);
            self.release_word();
        }
        let result = pause();
        if levels != 0 {
            match self.try_enter(me) {
                true => (1..levels).for_each(|_| self.acquire(me)),
                false => self.take(me, levels),
            }
        }
        result
    }

    /// How often the bias was revoked, and how often a thread found the lock taken by another.
    pub fn counts(&self) -> (u32, u32) {
        let counts = [&self.revoked, &self.contended];
        let [revoked, contended] = counts.map(|count| count.load(Ordering::Relaxed));
        (revoked, contended)
    }

    /// Takes `word`, and whatever bias another thread has.
    fn take(&self, me: usize, levels: u32) {
        self.take_word();
        self.revoke(me);
        let bias = self.bias.load(Ordering::Relaxed);
        let has_bias = bias & !SECOND == me; // again, since it was borrowed
        for (seat, mark) in self.seats() {
            if seat.insider.load(Ordering::Relaxed) == me && bias != me | mark {
                // It has seen that its bias is gone: another thread may have it.
                seat.insider.store(NOBODY, Ordering::Relaxed);
            }
        }
        self.owner.store(me, Ordering::Relaxed);
        self.depth.store(levels, Ordering::Relaxed);
        let alone = self.last.load(Ordering::Relaxed) == me && !self.is_wanted();
        let streak = match alone {
            true => self.streak.load(Ordering::Relaxed) + 1,
            false => 0,
        };
        self.last.store(me, Ordering::Relaxed);
        self.streak.store(streak, Ordering::Relaxed);
        if streak >= self.needed.load(Ordering::Relaxed) && !has_bias {
            self.streak.store(0, Ordering::Relaxed);
            self.favour(me);
        }
    }

    /// Takes the lock, which the thread does not hold, for a while in which whoever has the bias lends it. Ended by
    /// [`Biased::give_back`].
    pub fn borrow(&self, me: usize) {
        self.take_word();
        let (lender, _) = self.drive_out(me);
        self.lender.store(lender, Ordering::Relaxed);
        self.owner.store(me, Ordering::Relaxed);
        self.depth.store(1, Ordering::Relaxed);
    }

    /// As [`Biased::borrow`], where nobody is inside; false, without a wait and without a trace, where somebody is. A
    /// bias of another thread costs a fence, which is paid only if `may_fence`.
    pub fn try_borrow(&self, me: usize, may_fence: bool) -> bool {
        let has_bias = |biased| biased != NOBODY && biased & !SECOND != me;
        let is_inside = |order| self.seats().iter().any(|(seat, _)| seat.inside.load(order) != 0);
        if is_inside(Ordering::Relaxed)
            || (!may_fence && has_bias(self.bias.load(Ordering::Relaxed)))
            || !self.try_take_word()
        {
            return false;
        }
        // ORDERING: acquire pairs with the release in `forget`.
        let biased = self.bias.load(Ordering::Acquire);
        let lender = if has_bias(biased) { biased } else { NOBODY };
        if lender != NOBODY && may_fence {
            self.bias.store(NOBODY, Ordering::Relaxed);
            // It does not fail: without it there is no bias (`favour`).
            wait::fence_own_threads();
        }
        // ORDERING: acquire pairs with the release in `leave`.
        if is_inside(Ordering::Acquire) || (lender != NOBODY && !may_fence) {
            self.return_bias(if may_fence { lender } else { NOBODY });
            self.release_word();
            return false;
        }
        self.lender.store(lender, Ordering::Relaxed);
        self.owner.store(me, Ordering::Relaxed);
        self.depth.store(1, Ordering::Relaxed);
        true
    }

    /// Whether the thread is inside.
    #[inline]
    pub fn holds(&self, me: usize) -> bool {
        self.seat_of(me).is_some() || self.owner.load(Ordering::Relaxed) == me
    }

    /// Ends what [`Biased::borrow`] has begun.
    pub fn give_back(&self) {
        self.depth.store(0, Ordering::Relaxed);
        self.owner.store(NOBODY, Ordering::Relaxed);
        self.return_bias(self.lender.load(Ordering::Relaxed));
        self.release_word();
    }

    /// Gives the bias back to whom it was taken from without revoking it. The caller holds `word`.
    fn return_bias(&self, lender: usize) {
        let (insider, thread) = (&self.seat_for(lender).insider, lender & !SECOND);
        // Only a thread itself takes its number from there.
        if lender != NOBODY && insider.load(Ordering::Relaxed) == thread {
            // ORDERING: release: what was done inside is seen by the lender; partner is the acquire in `try_enter`.
            self.bias.store(lender, Ordering::Release);
            // ORDERING: partner is the fence in `forget`.
            fence(Ordering::SeqCst);
            if insider.load(Ordering::Relaxed) != thread {
                let relaxed = Ordering::Relaxed;
                _ = self.bias.compare_exchange(lender, NOBODY, relaxed, relaxed);
            }
        }
    }

    /// Ends the bias of another thread. The caller holds `word`.
    fn revoke(&self, me: usize) {
        let (revoked, fence_ns) = self.drive_out(me);
        if revoked != NOBODY {
            count(&self.revoked);
            self.note_fence(fence_ns);
        }
    }

    /// Takes the bias from another thread and waits until that one is not inside. Returns the bias and how many
    /// nanoseconds the fence took. The caller holds `word`.
    fn drive_out(&self, me: usize) -> (usize, u64) {
        // ORDERING: acquire pairs with the release in `forget`.
        let biased = self.bias.load(Ordering::Acquire);
        if biased == NOBODY || biased & !SECOND == me {
            return (NOBODY, 0);
        }
        let inside_word = &self.seat_for(biased).inside;
        self.wanted.fetch_add(1, Ordering::Relaxed);
        self.bias.store(NOBODY, Ordering::Relaxed);
        let began = now_ns();
        // It does not fail: without it there is no bias (`favour`).
        wait::fence_own_threads();
        let fence_ns = now_ns().saturating_sub(began);
        let mut polls = 0;
        loop {
            // ORDERING: acquire pairs with the release in `leave`.
            let inside = inside_word.load(Ordering::Acquire);
            if inside == 0 {
                break;
            }
            polls += 1;
            match polls > YIELDS {
                true => _ = wait::futex_wait(inside_word, inside, None),
                false => wait::yield_now(),
            }
        }
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        (biased, fence_ns)
    }

    /// The fence of a revocation took so long. A loan does not count: its bias comes back at once.
    fn note_fence(&self, took_ns: u64) {
        if !cfg!(feature = "loom") {
            let entries = (took_ns / FENCE_NS_PER_ENTRY).clamp(ALONE.into(), ALONE_MOST.into());
            self.needed.store(entries as u32, Ordering::Relaxed);
        }
    }
}

/// Whether a bias can be taken from its thread.
fn has_fence() -> bool {
    cfg!(feature = "loom") || wait::register_own_membarrier()
}

/// The time; 0 in the model, which has none.
fn now_ns() -> u64 {
    #[cfg(feature = "loom")]
    return 0;
    #[cfg(not(feature = "loom"))]
    crate::clock::now_ns()
}

/// Adds 1. The caller holds `word`, so that nobody else does.
fn count(number: &AtomicU32) {
    number.store(number.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

#[cfg(all(test, not(feature = "loom")))]
#[path = "biased/tests.rs"]
mod tests;

#[cfg(all(test, feature = "loom"))]
#[path = "biased/loom.rs"]
mod model;
