//! State machine of a pair that establishes one connection, whichever side starts.
//!
//! No I/O: events and time are arguments, and results are [`ConnectAction`]s. A side that needs the peer *dials* the
//! peer's addresses in order, 250 ms apart or as soon as the previous dial fails. The dialing side sends a hello on
//! each dial that connects, and confirms the first dial that returns a *welcome*. On the other side, a connection whose
//! rank is proved is a *caller*. That side welcomes the caller, and uses the connection that is confirmed.
//!
//! If both sides dial, the lower rank decides. It welcomes no caller while it dials, and the higher rank welcomes all
//! callers. The lower rank gives up its dials if they fail, or if they stay unanswered for a second while callers wait.
//! Then it welcomes those callers. So no pair confirms two connections.

pub(super) const APART_NS: u64 = 250_000_000;
/// Longest time that callers wait for the dials of the lower rank, in nanoseconds.
pub(super) const HELD_NS: u64 = 1_000_000_000;
/// Maximum number of times that a pair repeats dials which the peer dropped as those of a stranger. A rank that
/// computes between dial and hello looks like a stranger.
pub(super) const AGAIN_MOST: u32 = 8;
pub(super) const DIALS_MOST: usize = 32;
/// Maximum number of unused callers of a pair; the next replaces the oldest. A peer dials each address once at a time.
pub(super) const CALLERS_MOST: usize = DIALS_MOST;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectAction {
    Dial(usize),
    HangUp(usize),
    Confirm(usize),
    Welcome(u64),
    Dismiss(u64),
    Adopt(u64),
    Fail,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    Dialing,
    /// This side is the lower rank, has welcomed the peer's dials, and no longer dials itself.
    Answering,
    Connected,
    Failed,
}

#[derive(Debug, Clone, Copy)]
struct Caller {
    id: u64,
    since_ns: u64,
    welcomed: bool,
}

#[derive(Debug)]
pub(super) struct Connect {
    lower: bool,
    addresses: usize,
    stage: Stage,
    wanted: bool,
    /// Dials that are neither welcomed nor failed, as one bit for each address.
    live: u32,
    next: usize,
    due_ns: u64,
    again: u32,
    callers: Vec<Caller>,
}

impl Connect {
    pub fn new(lower: bool) -> Self {
        Connect {
            lower,
            addresses: 0,
            stage: Stage::Idle,
            wanted: false,
            live: 0,
            next: 0,
            due_ns: 0,
            again: 0,
            callers: Vec::new(),
        }
    }

    pub fn is_settled(&self) -> bool {
        matches!(self.stage, Stage::Connected | Stage::Failed)
    }

    /// Time of the next [`Connect::tick`]. `None` if only events can change the state.
    pub fn deadline_ns(&self) -> Option<u64> {
        if self.stage != Stage::Dialing {
            return None;
        }
        let next = (self.next < self.addresses).then_some(self.due_ns);
        let held = self.callers.iter().map(|caller| caller.since_ns + HELD_NS);
        let held = held.filter(|_| self.lower);
        next.into_iter().chain(held).min()
    }

    /// Resets a failed pair, so that it can be dialed again.
    pub fn forget(&mut self) {
        if self.stage == Stage::Failed {
            *self = Connect::new(self.lower);
        }
    }

    pub fn want(&mut self, addresses: usize, now_ns: u64, out: &mut Vec<ConnectAction>) {
        self.wanted = true;
        self.addresses = addresses.min(DIALS_MOST);
        if self.stage == Stage::Idle {
            self.begin_dialing(now_ns, out);
        }
    }

    fn begin_dialing(&mut self, now_ns: u64, out: &mut Vec<ConnectAction>) {
        (self.stage, self.next, self.due_ns) = (Stage::Dialing, 0, now_ns);
        self.tick(now_ns, out);
        self.look_for_an_end(out);
    }

    pub fn tick(&mut self, now_ns: u64, out: &mut Vec<ConnectAction>) {
        if self.stage != Stage::Dialing {
            return;
        }
        if self.next < self.addresses && now_ns >= self.due_ns {
            self.dial_next(now_ns, out);
        }
        let waits = |caller: &Caller| now_ns >= caller.since_ns + HELD_NS;
        if self.lower && self.callers.iter().any(waits) {
            self.answer(out);
        }
    }

    fn dial_next(&mut self, now_ns: u64, out: &mut Vec<ConnectAction>) {
        self.live |= 1 << self.next;
        out.push(ConnectAction::Dial(self.next));
        self.next += 1;
        self.due_ns = now_ns + APART_NS;
    }

    fn answer(&mut self, out: &mut Vec<ConnectAction>) {
        self.hang_up(None, out);
        self.stage = Stage::Answering;
        for caller in self.callers.iter_mut().filter(|caller| !caller.welcomed) {
            caller.welcomed = true;
            out.push(ConnectAction::Welcome(caller.id));
        }
    }

    pub fn dropped(&mut self, dial: usize, now_ns: u64, out: &mut Vec<ConnectAction>) {
        let is_live = self.live & 1 << dial != 0;
        if is_live && self.stage == Stage::Dialing && self.again < AGAIN_MOST {
            self.again += 1;
            return out.push(ConnectAction::Dial(dial));
        }
        self.fail(dial, now_ns, out);
    }

    pub fn fail(&mut self, dial: usize, now_ns: u64, out: &mut Vec<ConnectAction>) {
        if self.live & 1 << dial == 0 {
            return;
        }
        self.live &= !(1 << dial);
        if self.stage != Stage::Dialing {
            return;
        }
        if self.next < self.addresses {
            self.dial_next(now_ns, out);
        }
        self.look_for_an_end(out);
    }

    /// If no dial is left, welcomes the callers, or fails if there are none.
    fn look_for_an_end(&mut self, out: &mut Vec<ConnectAction>) {
        if self.stage != Stage::Dialing || self.live != 0 || self.next < self.addresses {
            return;
        }
        match self.callers.is_empty() {
            true => {
                self.stage = Stage::Failed;
                out.push(ConnectAction::Fail);
            }
            false => self.answer(out),
        }
    }

    pub fn welcomed(&mut self, dial: usize, out: &mut Vec<ConnectAction>) {
        if self.live & 1 << dial == 0 || self.is_settled() {
            return;
        }
        out.push(ConnectAction::Confirm(dial));
        self.connected(Some(dial), None, out);
    }

    pub fn called(&mut self, id: u64, now_ns: u64, out: &mut Vec<ConnectAction>) {
        if self.is_settled() {
            return out.push(ConnectAction::Dismiss(id));
        }
        let holds = self.lower && self.stage == Stage::Dialing;
        if self.callers.len() >= CALLERS_MOST {
            out.push(ConnectAction::Dismiss(self.callers.remove(0).id));
        }
        self.callers.push(Caller { id, since_ns: now_ns, welcomed: !holds });
        if holds {
            return;
        }
        out.push(ConnectAction::Welcome(id));
        if self.lower {
            self.stage = Stage::Answering;
        }
    }

    pub fn confirmed(&mut self, id: u64, out: &mut Vec<ConnectAction>) {
        let known = |caller: &Caller| caller.id == id && caller.welcomed;
        match self.callers.iter().any(known) && !self.is_settled() {
            true => {
                out.push(ConnectAction::Adopt(id));
                self.connected(None, Some(id), out);
            }
            false => out.push(ConnectAction::Dismiss(id)),
        }
    }

    pub fn caller_gone(&mut self, id: u64, now_ns: u64, out: &mut Vec<ConnectAction>) {
        self.callers.retain(|caller| caller.id != id);
        if self.stage == Stage::Answering && self.callers.is_empty() {
            self.stage = Stage::Idle;
            if self.wanted {
                self.begin_dialing(now_ns, out);
            }
        }
    }

    fn connected(
        &mut self, dial: Option<usize>, caller: Option<u64>, out: &mut Vec<ConnectAction>,
    ) {
        self.stage = Stage::Connected;
        self.hang_up(dial, out);
        let others = self.callers.drain(..).filter(|c| Some(c.id) != caller);
        out.extend(others.map(|c| ConnectAction::Dismiss(c.id)));
    }

    fn hang_up(&mut self, but: Option<usize>, out: &mut Vec<ConnectAction>) {
        let live = std::mem::take(&mut self.live);
        let dials = (0..DIALS_MOST).filter(|&dial| live & 1 << dial != 0);
        out.extend(dials.filter(|&dial| Some(dial) != but).map(ConnectAction::HangUp));
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
