//! Dials to one peer: its addresses, and the state of each dial.

use super::connect::DIALS_MOST;
use super::greeting::{HELLO, Pass, WELCOME};
use super::socket::Socket;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

#[derive(Default)]
pub(super) struct Dials {
    pub wanted: bool,
    /// Whether the dial only checks that the peer is still there ([`super::TcpIface::ask_after`]).
    pub asks: bool,
    /// `ask_due_ns`: time of the next check. `ask_apart_ns`: interval between two checks.
    pub ask_due_ns: u64,
    pub ask_apart_ns: u64,
    pub addresses: Option<Vec<SocketAddr>>,
    pub dials: Vec<Option<Dial>>,
    pub told: String,
    /// One bit for each address. `refused`: its host refused the connection. `unroutable`: there is no route to it.
    pub refused: u32,
    pub unroutable: u32,
}

pub(super) struct Dial {
    pub socket: Socket,
    pub hello: Option<([u8; HELLO], Pass)>,
    pub welcome: [u8; WELCOME],
    pub got: usize,
}

impl Dials {
    pub fn awaits_card(&self) -> bool {
        self.wanted && self.addresses.is_none()
    }

    pub fn hang_up(&mut self, dial: usize) {
        if let Some(dial) = self.dials.get_mut(dial) {
            *dial = None;
        }
    }

    pub fn take(&mut self, dial: usize) -> Option<Dial> {
        self.dials.get_mut(dial)?.take()
    }

    /// Whether the peer's host reports that the peer no longer listens. A rank listens from before it publishes its
    /// address until it leaves the job. An address that this host also has, such as a bridge's, may lead back to this
    /// host and proves nothing.
    pub fn proves_gone(&self, is_own: impl Fn(&SocketAddr) -> bool) -> bool {
        let addresses = self.addresses.iter().flatten().take(DIALS_MOST).enumerate();
        let others = addresses.filter(|(_, at)| !is_own(at));
        let others = others.fold(0, |bits, (dial, _)| bits | 1_u32 << dial);
        self.refused & others != 0 && others & !(self.refused | self.unroutable) == 0
    }

    /// Resets the dials after a check that has proved nothing. The interval until the next check grows.
    pub fn forget(&mut self) {
        *self = Dials {
            ask_due_ns: self.ask_due_ns,
            ask_apart_ns: self.ask_apart_ns,
            ..Dials::default()
        };
    }
}

pub(super) struct DialError {
    pub why: String,
    pub kind: ErrorKind,
    pub dropped: bool,
}

impl DialError {
    pub fn at(why: impl ToString) -> Self {
        DialError { why: why.to_string(), kind: ErrorKind::Other, dropped: false }
    }

    pub fn by(error: &io::Error) -> Self {
        DialError { kind: error.kind(), ..DialError::at(error) }
    }

    pub fn dropped(why: impl ToString) -> Self {
        DialError { dropped: true, ..DialError::at(why) }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn gone__is_who_is_refused_by_its_own_host_at_every_address() {
        let at = |last| SocketAddr::new([10, 0, 0, last].into(), 7);
        // Each case: addresses that are also this host's, addresses that refuse, addresses without a route, and the
        // expected result.
        let cases = [
            (&[false][..], 0b1, 0b0, true),
            (&[false], 0b0, 0b0, false),
            (&[false], 0b0, 0b1, false),
            (&[false, false], 0b01, 0b00, false),
            (&[false, false], 0b01, 0b10, true),
            (&[false, false], 0b11, 0b00, true),
            (&[false, true], 0b10, 0b00, false),
            (&[false, true], 0b10, 0b01, false),
            (&[false, true], 0b01, 0b00, true),
            (&[true, true], 0b11, 0b00, false),
            (&[], 0b0, 0b0, false),
        ];
        for (own, refused, unroutable, gone) in cases {
            let addresses: Vec<_> = (0..own.len()).map(|i| at(i as u8)).collect();
            let is_own =
                |one: &SocketAddr| addresses.iter().position(|at| at == one).map(|i| own[i]);
            let dialing = Dials {
                addresses: Some(addresses.clone()),
                refused,
                unroutable,
                ..Dials::default()
            };
            let proved = dialing.proves_gone(|one| is_own(one).unwrap());
            assert_eq!(proved, gone, "{own:?} {refused:b} {unroutable:b}");
        }
    }
}
