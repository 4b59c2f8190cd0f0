//! `FASTPATH_CHECK=1`: reports unordered accesses of this process to target memory and to its own buffers.

use super::conflicts::{AccessKind, Uses};
use super::target::{Elements, RmaTarget};
use super::window::{WINDOWS, Window};
use crate::check::Checks;
use crate::process::Process;

/// Number of pieces from which on an access is not examined.
const PIECES_MOST: usize = 1 << 12;

pub(super) struct OriginBuffer<'a> {
    pub at: *const u8,
    pub elements: &'a Elements,
    pub is_written: bool,
}

pub(super) struct Access<'a> {
    pub window: &'a Window,
    pub target: (&'a RmaTarget, &'a Elements),
    pub kind: AccessKind,
    /// Whether the operation has a request. Completion of the request frees the buffers and ends a get.
    pub has_request: bool,
    pub buffers: &'a [OriginBuffer<'a>],
}

impl Access<'_> {
    /// Reports earlier accesses that are not ordered with this one, and records this one.
    #[inline]
    pub fn check(&self, p: &Process) {
        if let Some(checks) = p.checks() {
            self.check_slow(p, checks);
        }
    }

    #[cold]
    #[inline(never)]
    fn check_slow(&self, p: &Process, checks: &Checks) {
        let call = checks.name(p.call.get());
        self.check_target(checks, &call);
        self.check_buffers(p, checks, &call);
    }

    fn check_target(&self, checks: &Checks, call: &str) {
        let (window, (found, elements)) = (self.window, self.target);
        let rank = found.rank;
        let Some(pieces) = list_pieces(elements) else {
            return;
        };
        let pieces: Vec<(i64, i64)> = pieces
            .into_iter()
            .map(|(at, len)| {
                let from = found.byte_at(at);
                (from, from.saturating_add(len))
            })
            .collect();
        let mut all = window.accesses.borrow_mut();
        let accesses = all.entry(rank).or_default();
        let conflict = pieces.iter().find_map(|&(from, end)| {
            let other = accesses.find(self.kind, from, end)?;
            Some((from, end - from, other))
        });
        if let Some((from, len, other)) = conflict {
            let (bytes, title) = (format!("{len} bytes at byte {from}"), window.title());
            let text = format!(
                "{call} accesses {bytes} of rank {rank} in the window ({title}) that {other} has \
                 accessed too, and nothing orders the two accesses: {}",
                window.separate("MPI_Win_flush")
            );
            checks.tell(&text);
        }
        let is_kept = !(self.has_request && self.kind == AccessKind::Get);
        for (from, end) in pieces.into_iter().filter(|_| is_kept) {
            accesses.add(self.kind, from, end, call);
        }
    }

    fn check_buffers(&self, p: &Process, checks: &Checks, call: &str) {
        let (window, rank) = (self.window, self.target.0.rank);
        let mut own = Uses::default();
        for buffer in self.buffers {
            let writes = buffer.is_written;
            let pieces = list_pieces(buffer.elements).unwrap_or_default().into_iter();
            let range = |(at, len): (i64, i64)| {
                let from = (buffer.at.addr() as i64).wrapping_add(at);
                (at, from, from.saturating_add(len))
            };
            let pieces: Vec<(i64, i64, i64)> = pieces.map(range).collect();
            let beside = |other: &str, (at, len): (i64, i64), wrote: bool| {
                let (does, did, title) = (verb(writes), verb(wrote), window.title());
                format!(
                    "{call} {does} {len} bytes of its buffer, from byte {at} on, that {other} \
                     {did} too (rank {rank}, window {title})"
                )
            };
            let earlier = pieces.iter().find_map(|&(at, from, end)| {
                let (other, wrote) = find_use(p, writes, from, end)?;
                let text = beside(&other, (at, end - from), wrote);
                Some((other, text))
            });
            if let Some((other, text)) = earlier {
                let remedy = window.separate("MPI_Win_flush_local");
                let text = format!("{text}, and nothing orders the two accesses: {remedy}");
                // Each pair of call sites is reported once, even if a loop repeats the calls with different bytes.
                checks.tell_first(format!("{call}, the buffer of {other}"), &text);
            }
            let within = pieces.iter().find_map(|&(at, from, end)| {
                let (_, wrote) = own.find(writes, from, end)?;
                Some(beside("the same operation", (at, end - from), wrote))
            });
            if let Some(text) = within {
                checks.tell(&(text + ": operands and result must not overlap"));
            }
            for (_, from, end) in pieces {
                own.add(writes, from, end, call);
            }
        }
        if !self.has_request {
            window.uses.borrow_mut().entry(rank).or_default().add_all(&own);
        }
    }
}

impl Window {
    /// Returns advice on how to order two operations of this epoch. In a passive epoch, the advice is to call `flush`.
    fn separate(&self, flush: &str) -> String {
        match self.epoch.borrow().may_flush(None) {
            Ok(()) => format!("call {flush} between them"),
            Err(_) => "end the epoch between them".to_owned(),
        }
    }
}

/// Finds an incomplete operation that conflicts with a new use of the bytes `from..end` of this process. `writes` tells
/// whether the new use writes. Returns the operation's call and whether the operation writes.
fn find_use(p: &Process, writes: bool, from: i64, end: i64) -> Option<(String, bool)> {
    let windows = WINDOWS.of(p);
    let mut living = windows.handles().into_iter().filter_map(|handle| windows.get(handle));
    living.find_map(|window| {
        let all = window.uses.borrow();
        let (call, wrote) = all.values().find_map(|uses| uses.find(writes, from, end))?;
        Some((call.to_string(), wrote))
    })
}

/// Lists the pieces of elements as offset and bytes. Returns `None` if there are too many.
fn list_pieces(elements: &Elements) -> Option<Vec<(i64, i64)>> {
    if let Some(at) = elements.piece() {
        return Some(vec![(at, elements.bytes as i64)]);
    }
    let mut pieces = Vec::new();
    elements.layout().visit_stretches(elements.count, |at, len| {
        if pieces.len() < PIECES_MOST {
            pieces.push((at, len as i64));
        }
    });
    (pieces.len() < PIECES_MOST).then_some(pieces)
}

fn verb(writes: bool) -> &'static str {
    if writes { "writes" } else { "reads" }
}
