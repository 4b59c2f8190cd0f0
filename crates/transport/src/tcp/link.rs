//! State of one peer: connection, buffers, and phase.

use super::buffers::{FrameHead, Inbox, Outbox};
use super::socket::{Epoll, IoOutcome, Socket};
use super::wire::{ReceivedWireup, TcpFrame, WireupHead};
use crate::contract::{Address, Header};
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_job::Job;
use fastpath_segment::{RankPage, RankPhase, has_left};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::rc::Rc;

/// Peers with pending work, so that no loop visits all peers.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub fresh: Vec<u32>,
    pub owing: Vec<u32>,
    pub wireups: VecDeque<ReceivedWireup>,
}

#[derive(Debug)]
pub(super) enum Stage {
    Waiting,
    Up(Socket),
    Down,
}

pub(super) struct TcpLink {
    pub stage: Stage,
    pub inbox: Inbox,
    pub outbox: Outbox,
    /// `limit`: maximum number of bytes in the outbox. `gather`: whether messages wait there for progress.
    pub limit: usize,
    pub gather: bool,
    pub failure: Option<String>,
    pub phase: Option<RankPhase>,
    /// Whether bytes may be in flight that the peer's kernel has not received.
    unsettled: bool,
    /// Whether the peer is in [`Lists::owing`]. Always true if `unsettled` is true.
    owing: bool,
    /// Whether the peer is polled, or is in [`Lists::fresh`].
    listed: bool,
    /// Whether the next message waits for the bulk frame after it, so that one call sends the message and the frame.
    pub(super) held: bool,
    /// Header of the bulk frame, if any, that is written to the socket in part, and its bytes still to be written.
    pub(super) open: Option<(Header, usize)>,
    /// Header of the bulk frame, if any, that is being streamed, and its bytes still to come.
    pub(super) bulk: Option<(Header, usize)>,
    /// Whether the last read emptied the socket, so the next `look` need not read.
    pub rested: bool,
    /// Whether the connection or the peer's page shows that nothing more will arrive from the peer.
    over: bool,
    /// Whether the kernel accepts nothing more for the peer.
    pub(super) broken: bool,
    write_error: Option<io::Error>,
    pub(super) watches_room: bool,
    /// Wire-up messages that wait for the connection: the last message of each step.
    pub(super) unsent: Vec<(WireupHead, Address)>,
    pub(super) word: Option<&'static AtomicU32>,
    peer: u32,
    token: u64,
    epoll: Rc<Epoll>,
    pub(super) lists: Rc<RefCell<Lists>>,
    job: &'static Job,
    /// Whether the peer is on this node and has its own page.
    is_node_peer: bool,
    pub name: String,
}

fn describe_end(error: Option<&io::Error>) -> String {
    const PEER: &str = "the rank's process has ended without MPI_Finalize, or its program closed \
                        the connection's descriptor";
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

impl TcpLink {
    pub fn new(
        (peer, token): (u32, u64), job: &'static Job,
        (epoll, lists): (Rc<Epoll>, Rc<RefCell<Lists>>), (limit, gather): (usize, bool),
    ) -> Self {
        TcpLink {
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

    pub fn use_socket(&mut self, socket: Socket, before: &[u8]) {
        self.announce();
        // The token of a dial or caller watches this socket already.
        if let Err(error) = self.epoll.change(socket.fd(), self.token, false) {
            return self
                .fail(format!("the connection to the rank cannot be added to epoll: {error}"));
        }
        self.stage = Stage::Up(socket);
        self.outbox.push_bytes(before);
        self.flush();
    }

    pub fn announce(&mut self) {
        if !std::mem::replace(&mut self.listed, true) {
            self.lists.borrow_mut().fresh.push(self.peer);
        }
    }

    pub(super) fn peer(&self) -> u32 {
        self.peer
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub fn retire(&mut self) {
        self.listed = false;
    }

    #[inline]
    pub(super) fn note_sent(&mut self) {
        self.unsettled = true;
        if !std::mem::replace(&mut self.owing, true) {
            self.lists.borrow_mut().owing.push(self.peer);
        }
    }

    #[inline]
    pub fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Up(_))
    }

    /// Ends the connection with an error; received messages can still be taken.
    #[cold]
    pub fn fail(&mut self, why: String) {
        if self.failure.is_none() {
            self.failure = Some(why);
        }
        self.close();
    }

    /// Ends the connection without an error, because the peer has left.
    pub fn close(&mut self) {
        (self.stage, self.over, self.open) = (Stage::Down, true, None);
        self.outbox.clear();
        self.tell_state();
    }

    /// Page of the peer, looked up each time: after a spawned peer ends, another rank may get its page.
    #[inline]
    fn page(&self) -> Option<&'static RankPage> {
        self.job.rank_page(self.peer as usize)
    }

    #[inline]
    fn is_told_gone(&self) -> bool {
        // ORDERING: acquire pairs with the release of a rank that leaves the job (`Job::set_phase`), and of the
        // launcher that marks it dead.
        self.page().is_none_or(|page| has_left(page.state.load(Ordering::Acquire)))
    }

    #[cold]
    pub(super) fn end(&mut self, error: Option<io::Error>) {
        let said = self.phase == Some(RankPhase::Finalized);
        // Another rank may take the peer's place between the look-up and the load.
        let has_lost_place = || self.job.segment().has_lost_place(self.peer as usize);
        if said || self.is_told_gone() || has_lost_place() {
            return self.close();
        }
        let why = describe_end(error.as_ref());
        self.fail(format!("{}: {why}", self.name));
    }

    /// Reads once, unless a whole frame has arrived or the next bytes are to be streamed; returns whether any bytes
    /// have arrived.
    pub fn read(&mut self) -> bool {
        let Stage::Up(socket) = &self.stage else {
            return false;
        };
        if self.awaits_bulk() || !matches!(self.inbox.head(), FrameHead::Partial) {
            return false;
        }
        let room = self.inbox.room();
        let most = room.len();
        match socket.read(room) {
            IoOutcome::Bytes(bytes) => {
                self.inbox.fill(bytes);
                self.rested = bytes < most;
                self.announce();
                true
            }
            IoOutcome::Later => {
                self.rested = true;
                false
            }
            IoOutcome::Ended(error) => {
                self.end(error);
                true
            }
        }
    }

    #[inline]
    pub fn advance(&mut self) -> FrameHead {
        if self.bulk.is_some() {
            return FrameHead::Partial;
        }
        loop {
            let head = self.inbox.head();
            match head {
                FrameHead::Whole(frame @ TcpFrame::Phase(phase), _) => {
                    self.inbox.take(&frame);
                    self.hear(phase);
                }
                FrameHead::Whole(TcpFrame::Wireup(head, len), _) => self.hear_wireup(head, len),
                FrameHead::Garbage if self.is_up() => {
                    self.fail(format!("{} has sent an invalid message", self.name));
                    return FrameHead::Partial;
                }
                FrameHead::Garbage => return FrameHead::Partial,
                _ => return head,
            }
        }
    }

    #[cold]
    fn hear(&mut self, phase: RankPhase) {
        self.phase = self.phase.max(Some(phase));
        self.over |= phase == RankPhase::Finalized;
        self.tell_state();
    }

    pub fn has_message(&mut self) -> bool {
        matches!(self.advance(), FrameHead::Whole(..))
    }

    /// Whether the peer receives nothing more, and all its messages have been taken.
    pub fn has_left(&mut self) -> bool {
        self.advance();
        if !self.over && self.is_told_gone() {
            self.over = true;
            // Before the peer left, this host's kernel had received everything that the peer sent, so read it all.
            while matches!(self.advance(), FrameHead::Partial) && self.read() {}
            self.tell_state();
        }
        if self.is_up() && self.awaits_bulk() {
            return false;
        }
        self.over && !self.has_message() && !(self.is_up() && self.read() && self.has_message())
    }

    pub fn heard_phase(&mut self) -> Option<RankPhase> {
        self.advance();
        match self.is_node_peer {
            true => self.page().map(RankPage::phase),
            false => self.phase,
        }
    }

    #[inline]
    pub fn takes_messages(&self) -> bool {
        !self.over && !self.broken && !self.is_told_gone()
    }

    pub fn tell_phase(&mut self, phase: RankPhase) {
        // A frame written in part cannot be interrupted. The peer then learns of the exit by the connection's end.
        if self.is_up() && !self.is_node_peer && self.open.is_none() {
            self.outbox.push(&TcpFrame::Phase(phase), |_| ());
            self.flush();
        }
    }

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
            IoOutcome::Bytes(bytes) => {
                self.outbox.sent(bytes);
                if bytes == whole && !self.watches_room {
                    return;
                }
            }
            IoOutcome::Later => {}
            // Do not report the end now: the peer's last messages may still be unread, and a later read reports it.
            IoOutcome::Ended(error) => self.break_off(error),
        }
        self.watch_room();
    }

    #[cold]
    pub(super) fn break_off(&mut self, error: Option<io::Error>) {
        (self.broken, self.open, self.write_error) = (true, None, error);
        self.outbox.clear();
    }

    /// Reason why the peer is unreachable, for messages; `None` if it is reachable or has finalized.
    pub fn describe_failure(&self) -> Option<String> {
        let broken = self.write_error.as_ref().filter(|_| self.phase != Some(RankPhase::Finalized));
        let broken = broken.map(|error| format!("{}: {}", self.name, describe_end(Some(error))));
        self.failure.clone().or(broken)
    }

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

    /// Whether the peer will find everything sent before it sees this process's next phase. A peer that reads the phase
    /// on this process's page finds only what its kernel has. Other peers get the phase on the connection, after
    /// everything else.
    pub fn has_arrived(&mut self) -> bool {
        match self.is_node_peer {
            true => self.is_settled(),
            false => {
                self.flush();
                self.outbox.is_empty() || !self.is_up() || !self.takes_messages()
            }
        }
    }

    /// Whether the peer's kernel has received everything sent, or never will.
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

    /// Fails a peer whose kernel owes an acknowledgement and has been silent for `most_ns`. Returns whether the peer
    /// still owes an acknowledgement; if not, remove it from [`Lists::owing`].
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
            self.fail(format!("{}: the host has not answered for {seconds} s", self.name));
        }
        self.is_up()
    }
}
