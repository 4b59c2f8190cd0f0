//! One peer: its connection, what has come and what is to go, and what is known of it.

use super::buffers::{Head, Inbox, Outbox};
use super::socket::{Epoll, Moved, Socket};
use super::wire::{Frame, WireupHead};
use super::wireup::Received;
use crate::contract::{Address, Header};
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_bootstrap::job::Job;
use fastpath_bootstrap::segment::{Phase, RankPage, has_left};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::rc::Rc;

/// Peers that there is something to do for, so that nobody need look at all of them.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// Those whose connection has come about, or of which something has been read, since they were taken from here.
    pub fresh: Vec<u32>,
    /// Those that something may be under way to.
    pub owing: Vec<u32>,
    /// Messages of the wire-up that have come and were not taken.
    pub wireups: VecDeque<Received>,
}

/// Where a connection stands.
#[derive(Debug)]
pub(super) enum Stage {
    /// It is still to be made.
    Waiting,
    Up(Socket),
    /// It has ended, or will never be.
    Down,
}

/// One peer.
pub(super) struct Link {
    pub stage: Stage,
    pub inbox: Inbox,
    pub outbox: Outbox,
    /// Bytes that may wait in the outbox, and whether messages wait there for progress.
    pub limit: usize,
    pub gather: bool,
    /// Why nothing goes to this peer any more, for people.
    pub failure: Option<String>,
    /// How far the peer says that it has come.
    pub phase: Option<Phase>,
    /// Whether something may be under way that the peer's kernel does not have yet.
    unsettled: bool,
    /// Whether the peer is in [`Lists::owing`]; so it is where `unsettled` is set.
    owing: bool,
    /// Whether whoever takes from [`Lists::fresh`] looks at this peer, or will find it there.
    listed: bool,
    /// The next message waits for the bulk frame behind it, so that both go by one call.
    pub(super) held: bool,
    /// The bulk frame of which the kernel has a part, and how many bytes of it are to go.
    pub(super) open: Option<(Header, usize)>,
    /// What is left of a bulk frame that is taken as it comes.
    pub(super) bulk: Option<(Header, usize)>,
    /// The last read found less than there was room for: the next look need not read again.
    pub rested: bool,
    /// Nothing more comes from the peer, by the connection or by its page.
    over: bool,
    /// The kernel takes nothing for the peer any more.
    pub(super) broken: bool,
    /// Error of the write that `broken` comes from.
    write_error: Option<io::Error>,
    pub(super) watches_room: bool,
    /// Messages of the wire-up that wait for the connection; of each step the last one.
    pub(super) unsent: Vec<(WireupHead, Address)>,
    /// Says whether the peer has left, where somebody wants to know that without this.
    pub(super) word: Option<&'static AtomicU32>,
    peer: u32,
    /// The number under which its socket is watched, and where.
    token: u64,
    epoll: Rc<Epoll>,
    pub(super) lists: Rc<RefCell<Lists>>,
    job: &'static Job,
    /// Whether the peer is on this node: its page is its own.
    is_node_peer: bool,
    /// Who it is, for people.
    pub name: String,
}

/// How a connection has ended, for people.
fn describe_end(error: Option<&io::Error>) -> String {
    const PEER: &str = "its process has ended without MPI_Finalize, or its program closed the \
         descriptor of the connection";
    match error {
        Some(error)
            if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) =>
        {
            format!("the connection has ended ({error}): {PEER}")
        }
        Some(error) => format!("the connection has ended: {error}"),
        None => PEER.to_owned(),
    }
}

impl Link {
    pub fn new(
        (peer, token): (u32, u64), job: &'static Job,
        (epoll, lists): (Rc<Epoll>, Rc<RefCell<Lists>>), (limit, gather): (usize, bool),
    ) -> Self {
        Link {
            stage: Stage::Waiting,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            limit,
            gather,
            failure: None,
            phase: None,
            unsettled: false,
            owing: false,
            listed: false,
            held: false,
            open: None,
            bulk: None,
            rested: false,
            over: false,
            broken: false,
            write_error: None,
            watches_room: false,
            unsent: Vec::new(),
            word: None,
            peer,
            token,
            epoll,
            lists,
            job,
            is_node_peer: job.is_node_peer(peer as usize),
            name: format!("rank {peer}"),
        }
    }

    /// Uses a connection that both sides have agreed on, after the bytes that are still to be said.
    pub fn use_socket(&mut self, socket: Socket, before: &[u8]) {
        self.announce();
        // It is watched already, under the number by which it came about.
        if let Err(error) = self.epoll.change(socket.fd(), self.token, false) {
            return self.fail(format!("its connection cannot be watched: {error}"));
        }
        self.stage = Stage::Up(socket);
        self.outbox.push_bytes(before);
        self.flush();
    }

    /// There is something to look at, or to be learnt.
    pub fn announce(&mut self) {
        if !std::mem::replace(&mut self.listed, true) {
            self.lists.borrow_mut().fresh.push(self.peer);
        }
    }

    pub(super) fn peer(&self) -> u32 {
        self.peer
    }

    /// Whether nothing more comes from the peer.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Nobody looks at it any more until [`Link::announce`].
    pub fn retire(&mut self) {
        self.listed = false;
    }

    /// Something is under way.
    #[inline]
    pub(super) fn note_sent(&mut self) {
        self.unsettled = true;
        if !std::mem::replace(&mut self.owing, true) {
            self.lists.borrow_mut().owing.push(self.peer);
        }
    }

    /// Whether the connection is there.
    #[inline]
    pub fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Up(_))
    }

    /// Nothing goes to or comes from this peer any more, beyond what has come.
    #[cold]
    pub fn fail(&mut self, why: String) {
        if self.failure.is_none() {
            self.failure = Some(why);
        }
        self.close();
    }

    /// The same, without anything having failed: the peer has left.
    pub fn close(&mut self) {
        (self.stage, self.over, self.open) = (Stage::Down, true, None);
        self.outbox.clear();
        self.tell_state();
    }

    /// The page that stands for the peer now. It is looked up each time: no ring holds the place of a spawned peer,
    /// whose page is another rank's some time after the peer has ended.
    #[inline]
    fn page(&self) -> Option<&'static RankPage> {
        self.job.rank_page(self.peer as usize)
    }

    /// Whether the peer's page reports that the peer has left.
    #[inline]
    fn is_told_gone(&self) -> bool {
        // ORDERING: acquire pairs with the release of a rank that leaves the job (`Job::set_phase`), and of the
        // launcher that marks it dead.
        self.page().is_none_or(|page| has_left(page.state.load(Ordering::Acquire)))
    }

    /// The peer has closed the connection.
    #[cold]
    pub(super) fn end(&mut self, error: Option<io::Error>) {
        let said = self.phase == Some(Phase::Finalized);
        // The place may be taken from the peer between the look-up and the load.
        let has_lost_place = || self.job.segment().has_lost_place(self.peer as usize);
        if said || self.is_told_gone() || has_lost_place() {
            return self.close();
        }
        let why = describe_end(error.as_ref());
        self.fail(format!("{}: {why}", self.name));
    }

    /// Reads once, where no whole frame lies here; says whether anything has come. What is taken as it comes is left to
    /// the kernel.
    pub fn read(&mut self) -> bool {
        let Stage::Up(socket) = &self.stage else {
            return false;
        };
        if self.awaits_bulk() || !matches!(self.inbox.head(), Head::Partial) {
            return false;
        }
        let room = self.inbox.room();
        let most = room.len();
        match socket.read(room) {
            Moved::Bytes(bytes) => {
                self.inbox.fill(bytes);
                self.rested = bytes < most;
                self.announce();
                true
            }
            Moved::Later => {
                self.rested = true;
                false
            }
            Moved::Ended(error) => {
                self.end(error);
                true
            }
        }
    }

    /// Takes what the peer says of itself, up to the next message; that, if it is whole.
    #[inline]
    pub fn advance(&mut self) -> Head {
        if self.bulk.is_some() {
            return Head::Partial;
        }
        loop {
            let head = self.inbox.head();
            match head {
                Head::Whole(frame @ Frame::Phase(phase), _) => {
                    self.inbox.take(&frame);
                    self.hear(phase);
                }
                Head::Whole(Frame::Wireup(head, len), _) => self.hear_wireup(head, len),
                Head::Garbage if self.is_up() => {
                    self.fail(format!("{}: it has sent what is no message", self.name));
                    return Head::Partial;
                }
                Head::Garbage => return Head::Partial,
                _ => return head,
            }
        }
    }

    #[cold]
    fn hear(&mut self, phase: Phase) {
        self.phase = self.phase.max(Some(phase));
        self.over |= phase == Phase::Finalized;
        self.tell_state();
    }

    /// Whether a message lies here.
    pub fn has_message(&mut self) -> bool {
        matches!(self.advance(), Head::Whole(..))
    }

    /// Whether the peer takes nothing any more, and all that it has sent is taken.
    pub fn has_left(&mut self) -> bool {
        self.advance();
        if !self.over && self.is_told_gone() {
            self.over = true;
            // All that it sent had reached this host's kernel before.
            while matches!(self.advance(), Head::Partial) && self.read() {}
            self.tell_state();
        }
        if self.is_up() && self.awaits_bulk() {
            return false;
        }
        self.over && !self.has_message() && !(self.is_up() && self.read() && self.has_message())
    }

    /// How far the peer has come with leaving the job, where its page does not say.
    pub fn heard_phase(&mut self) -> Option<Phase> {
        self.advance();
        match self.is_node_peer {
            true => self.page().map(RankPage::phase),
            false => self.phase,
        }
    }

    /// Whether the peer will take what is sent to it.
    #[inline]
    pub fn takes_messages(&self) -> bool {
        !self.over && !self.broken && !self.is_told_gone()
    }

    /// Says how far this process has come, where the peer cannot see it.
    pub fn tell_phase(&mut self, phase: Phase) {
        // In the middle of a frame nothing can be said: the end of the connection will say that it is none.
        if self.is_up() && !self.is_node_peer && self.open.is_none() {
            self.outbox.push(&Frame::Phase(phase), |_| ());
            self.flush();
        }
    }

    /// Gives the kernel what it takes.
    #[inline]
    pub fn flush(&mut self) {
        if self.outbox.is_empty() || !self.is_up() {
            return;
        }
        self.note_sent();
        let Stage::Up(socket) = &self.stage else {
            return;
        };
        let rest = self.outbox.rest();
        let whole = rest.len();
        match socket.write(rest) {
            Moved::Bytes(bytes) => {
                self.outbox.sent(bytes);
                if bytes == whole && !self.watches_room {
                    return;
                }
            }
            Moved::Later => {}
            // What it has sent before may still be read: that tells of its end.
            Moved::Ended(error) => self.break_off(error),
        }
        self.watch_room();
    }

    /// The kernel takes nothing more for the peer.
    #[cold]
    pub(super) fn break_off(&mut self, error: Option<io::Error>) {
        (self.broken, self.open, self.write_error) = (true, None, error);
        self.outbox.clear();
    }

    /// Why the peer cannot be reached any more, for people; `None` if it can, or has finalized.
    pub fn describe_failure(&self) -> Option<String> {
        let broken = self.write_error.as_ref().filter(|_| self.phase != Some(Phase::Finalized));
        let broken = broken.map(|error| format!("{}: {}", self.name, describe_end(Some(error))));
        self.failure.clone().or(broken)
    }

    /// Has the kernel tell when it takes more, where there is more.
    #[cold]
    pub(super) fn watch_room(&mut self) {
        let wanted = !self.outbox.is_empty() || self.open.is_some();
        if let Stage::Up(socket) = &self.stage
            && wanted != self.watches_room
        {
            let changed = self.epoll.change(socket.fd(), self.token, wanted);
            self.watches_room = wanted && changed.is_ok();
        }
    }

    /// Whether what was sent may be spoken of elsewhere: the peer finds it before that. Where it sees this process's
    /// page its kernel must have it; else that comes by the same connection.
    pub fn has_arrived(&mut self) -> bool {
        match self.is_node_peer {
            true => self.is_settled(),
            false => {
                self.flush();
                self.outbox.is_empty() || !self.is_up() || !self.takes_messages()
            }
        }
    }

    /// Whether the peer's kernel has all that was sent, or nobody will ever take it.
    pub fn is_settled(&mut self) -> bool {
        if !self.takes_messages() {
            return true;
        }
        if !self.outbox.is_empty() && self.is_up() {
            self.flush();
            if !self.outbox.is_empty() {
                return false;
            }
        }
        match &self.stage {
            Stage::Up(socket) if self.unsettled && !self.broken => {
                self.unsettled = socket.unacknowledged() != 0;
                !self.unsettled
            }
            _ => true,
        }
    }

    /// Gives the peer up where its kernel owes an answer and has not been heard for so long; says whether it still
    /// owes one. Else it is to be taken from [`Lists::owing`].
    pub fn check_silence(&mut self, most_ns: u64) -> bool {
        self.owing = self.unsettled && self.owes_answer(most_ns);
        self.owing
    }

    fn owes_answer(&mut self, most_ns: u64) -> bool {
        if self.is_settled() {
            return false;
        }
        let silent = match &self.stage {
            Stage::Up(socket) => socket.silent_ns(),
            _ => return false,
        };
        if silent > most_ns {
            let seconds = most_ns / 1_000_000_000;
            self.fail(format!("{}: nothing has been heard of its host for {seconds} s", self.name));
        }
        self.is_up()
    }
}
