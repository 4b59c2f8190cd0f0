//! How a pair comes to one connection, whoever wants it first.
//!
//! Pure: events and time come in, [`Action`]s come out. Whoever wants to talk *dials* the peer's addresses in order,
//! 250 ms apart or as soon as one fails, greets at each that connects, and confirms the first that *welcomes* it. The
//! other side sees a *caller* that has proved who it is, welcomes it, and takes the connection that is confirmed.
//!
//! Where both dial at once, the lower rank decides: while it dials it welcomes nobody, and the higher one welcomes all
//! the same. A lower rank whose own calls come to nothing, or are not answered for a second while the peer's wait,
//! hangs up and welcomes those instead. So no pair confirms two.

/// Nanoseconds between two dials.
pub(super) const APART_NS: u64 = 250_000_000;
/// Nanoseconds that a caller waits for the calls of the lower rank at most.
pub(super) const HELD_NS: u64 = 1_000_000_000;
/// Calls of a pair that are made again, at most, because the peer hung up on them before it knew who called: it does so
/// with strangers, and takes a rank that computes between calling and greeting for one.
pub(super) const AGAIN_MOST: u32 = 8;
/// Addresses of a peer that are tried, at most.
pub(super) const DIALS_MOST: usize = 32;
/// Callers of a pair that have proved who they are and are not used yet, at most; the oldest goes for the next one. A
/// peer calls each address of this host at once, and no more.
pub(super) const CALLERS_MOST: usize = DIALS_MOST;

/// What the owner of the state machine must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Connect to the peer's address of this number, and greet.
    Dial(usize),
    /// Close that call of ours.
    HangUp(usize),
    /// That address has welcomed us: confirm, and use the connection.
    Confirm(usize),
    /// Welcome this caller.
    Welcome(u64),
    /// Close this caller's connection.
    Dismiss(u64),
    /// The caller has confirmed: use its connection.
    Adopt(u64),
    /// There will be no connection.
    Fail,
}

/// Where a pair stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nobody has wanted anything yet.
    Idle,
    /// This side calls.
    Dialing,
    /// The lower rank has welcomed the peer's calls, and calls no more.
    Answering,
    Connected,
    Failed,
}

/// A connection of the peer's making that has proved whose it is.
#[derive(Debug, Clone, Copy)]
struct Caller {
    id: u64,
    since_ns: u64,
    welcomed: bool,
}

/// One pair, as one of its sides sees it.
#[derive(Debug)]
pub(super) struct Connect {
    /// Whether this side is the lower rank.
    lower: bool,
    addresses: usize,
    stage: Stage,
    /// Whether this side has something to say.
    wanted: bool,
    /// Calls of ours that are neither welcomed nor failed, a bit for each address.
    live: u32,
    /// The next address to call, and when.
    next: usize,
    due_ns: u64,
    /// Calls that were made again.
    again: u32,
    callers: Vec<Caller>,
}

impl Connect {
    /// Of a peer that nothing is known of yet.
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

    /// Whether this side has a connection, or never will have one.
    pub fn is_settled(&self) -> bool {
        matches!(self.stage, Stage::Connected | Stage::Failed)
    }

    /// When [`Connect::tick`] has something to do next; `None` where events alone lead on.
    pub fn deadline_ns(&self) -> Option<u64> {
        if self.stage != Stage::Dialing {
            return None;
        }
        let next = (self.next < self.addresses).then_some(self.due_ns);
        let held = self.callers.iter().map(|caller| caller.since_ns + HELD_NS);
        let held = held.filter(|_| self.lower);
        next.into_iter().chain(held).min()
    }

    /// Forgets that this side wanted to talk: no call of it is left.
    pub fn forget(&mut self) {
        if self.stage == Stage::Failed {
            *self = Connect::new(self.lower);
        }
    }

    /// This side wants to talk to the peer, which has so many addresses.
    pub fn want(&mut self, addresses: usize, now_ns: u64, out: &mut Vec<Action>) {
        self.wanted = true;
        self.addresses = addresses.min(DIALS_MOST);
        if self.stage == Stage::Idle {
            self.begin_dialing(now_ns, out);
        }
    }

    fn begin_dialing(&mut self, now_ns: u64, out: &mut Vec<Action>) {
        (self.stage, self.next, self.due_ns) = (Stage::Dialing, 0, now_ns);
        self.tick(now_ns, out);
        self.look_for_an_end(out);
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ns: u64, out: &mut Vec<Action>) {
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

    fn dial_next(&mut self, now_ns: u64, out: &mut Vec<Action>) {
        self.live |= 1 << self.next;
        out.push(Action::Dial(self.next));
        self.next += 1;
        self.due_ns = now_ns + APART_NS;
    }

    /// The lower rank hangs up, and welcomes who waits.
    fn answer(&mut self, out: &mut Vec<Action>) {
        self.hang_up(None, out);
        self.stage = Stage::Answering;
        for caller in self.callers.iter_mut().filter(|caller| !caller.welcomed) {
            caller.welcomed = true;
            out.push(Action::Welcome(caller.id));
        }
    }

    /// The other end has hung up on a call of ours before it answered.
    pub fn dropped(&mut self, dial: usize, now_ns: u64, out: &mut Vec<Action>) {
        let is_live = self.live & 1 << dial != 0;
        if is_live && self.stage == Stage::Dialing && self.again < AGAIN_MOST {
            self.again += 1;
            return out.push(Action::Dial(dial));
        }
        self.fail(dial, now_ns, out);
    }

    /// A call of ours did not reach the peer.
    pub fn fail(&mut self, dial: usize, now_ns: u64, out: &mut Vec<Action>) {
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

    /// Where no call is left, the peer's own are what is left.
    fn look_for_an_end(&mut self, out: &mut Vec<Action>) {
        if self.stage != Stage::Dialing || self.live != 0 || self.next < self.addresses {
            return;
        }
        match self.callers.is_empty() {
            true => {
                self.stage = Stage::Failed;
                out.push(Action::Fail);
            }
            false => self.answer(out),
        }
    }

    /// A call of ours is welcome.
    pub fn welcomed(&mut self, dial: usize, out: &mut Vec<Action>) {
        if self.live & 1 << dial == 0 || self.is_settled() {
            return;
        }
        out.push(Action::Confirm(dial));
        self.connected(Some(dial), None, out);
    }

    /// The peer calls, and has proved that it is the peer.
    pub fn called(&mut self, id: u64, now_ns: u64, out: &mut Vec<Action>) {
        if self.is_settled() {
            return out.push(Action::Dismiss(id));
        }
        let holds = self.lower && self.stage == Stage::Dialing;
        if self.callers.len() >= CALLERS_MOST {
            out.push(Action::Dismiss(self.callers.remove(0).id));
        }
        self.callers.push(Caller { id, since_ns: now_ns, welcomed: !holds });
        if holds {
            return;
        }
        out.push(Action::Welcome(id));
        if self.lower {
            self.stage = Stage::Answering;
        }
    }

    /// A caller has confirmed its connection.
    pub fn confirmed(&mut self, id: u64, out: &mut Vec<Action>) {
        let known = |caller: &Caller| caller.id == id && caller.welcomed;
        match self.callers.iter().any(known) && !self.is_settled() {
            true => {
                out.push(Action::Adopt(id));
                self.connected(None, Some(id), out);
            }
            false => out.push(Action::Dismiss(id)),
        }
    }

    /// A caller has gone.
    pub fn caller_gone(&mut self, id: u64, now_ns: u64, out: &mut Vec<Action>) {
        self.callers.retain(|caller| caller.id != id);
        if self.stage == Stage::Answering && self.callers.is_empty() {
            self.stage = Stage::Idle;
            if self.wanted {
                self.begin_dialing(now_ns, out);
            }
        }
    }

    fn connected(&mut self, dial: Option<usize>, caller: Option<u64>, out: &mut Vec<Action>) {
        self.stage = Stage::Connected;
        self.hang_up(dial, out);
        let others = self.callers.drain(..).filter(|c| Some(c.id) != caller);
        out.extend(others.map(|c| Action::Dismiss(c.id)));
    }

    fn hang_up(&mut self, but: Option<usize>, out: &mut Vec<Action>) {
        let live = std::mem::take(&mut self.live);
        let dials = (0..DIALS_MOST).filter(|&dial| live & 1 << dial != 0);
        out.extend(dials.filter(|&dial| Some(dial) != but).map(Action::HangUp));
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
