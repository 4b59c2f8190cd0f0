//! What every transport must keep of the contract, run on each of them.
//!
//! A transport joins with a [`Rig`]: two ends of one direction, a way to let time pass, and all that
//! the receiving side can observe. The macro makes one test of each rule.
#![allow(unsafe_code, non_snake_case)]

mod rigs;
mod rules;

use crate::contract::{Endpoint, Header, Post};
use std::iter;
use std::sync::OnceLock;

/// Two ends of one direction of a transport.
pub(crate) trait Rig {
    /// The transport's endpoint.
    type End: Endpoint;
    /// A connected pair whose counters start at `start` where the transport counts.
    fn new(start: Start) -> Self;
    /// The sending end.
    fn tx(&mut self) -> &mut Self::End;
    /// The receiving end; may be the same.
    fn rx(&mut self) -> &mut Self::End;
    /// Lets time pass until all that was sent can be seen.
    fn settle(&mut self);
    /// Lets the sender know all that was taken.
    fn return_credits(&mut self);
    /// Everything of the sender's doing that the receiver could observe.
    fn observe(&mut self) -> Vec<u8>;
    /// Whether room is limited by anything but memory.
    const LIMITED: bool = true;
}

/// Where the counters of a pair start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Start {
    /// Messages sent and taken before.
    pub messages: u32,
    /// Bytes sent and taken before.
    pub bytes: u32,
}

/// A message as it was posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub header: Header,
    pub data: Vec<u8>,
}

/// Payloads of every transport's `short` that the header's `aux` need not travel with.
const SHORT_MAX: usize = 48;

impl Sent {
    /// A message that can be told from all others.
    pub fn numbered(number: u32, len: usize) -> Self {
        let header = Header {
            aux: if len > SHORT_MAX { !number as u16 } else { 0 },
            ..Header::new(
                number as u8,
                number.wrapping_mul(0x9e37_79b9),
                (number as u64) << 32 | !number as u64,
            )
        };
        // Bytes of one pattern from a place of its own: filled anew they would take most of the time of the tests.
        let from = number.wrapping_mul(0x9e37_79b9) as usize % PATTERN_BYTES;
        let round = iter::once(&pattern()[from..]).chain(iter::repeat(pattern()));
        let mut data = Vec::with_capacity(len);
        for part in round {
            data.extend_from_slice(&part[..part.len().min(len - data.len())]);
            if data.len() == len {
                break;
            }
        }
        Sent { header, data }
    }
}

/// Length of the pattern: a prime, so that no part of a ring or of its data area is a round of it.
const PATTERN_BYTES: usize = 65_521;

fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let byte = |i: u32| i.wrapping_mul(0x9e37_79b9).to_le_bytes()[3];
        (0..PATTERN_BYTES as u32).map(byte).collect()
    })
}

/// How to post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendForm {
    Short,
    Bcopy,
}

/// Posts a message; `true` where it has left. Says so where anything but the two happens.
pub(crate) fn post<R: Rig>(rig: &mut R, way: SendForm, sent: &Sent) -> bool {
    let mut packed = false;
    let len = sent.data.len();
    let answer = match way {
        // SAFETY: the data holds `len` bytes.
        SendForm::Short => unsafe { rig.tx().am_short(sent.header, sent.data.as_ptr(), len) },
        SendForm::Bcopy => rig.tx().am_bcopy(sent.header, len, |to| {
            packed = true;
            // SAFETY: `to` has room for `len` bytes.
            unsafe { std::ptr::copy_nonoverlapping(sent.data.as_ptr(), to, len) }
        }),
    };
    match answer {
        Post::Done => {}
        Post::Wake => assert_eq!(rig.tx().wake(), Post::Done),
        Post::NoResource => {
            assert!(!packed, "packed, and then refused");
            return false;
        }
        Post::InProgress | Post::PeerGone => {
            panic!("{answer:?} for a message that was copied to a live peer")
        }
    }
    assert!(packed || way == SendForm::Short, "left without its payload");
    true
}

/// The next arrival, copied; it stays where it is.
pub(crate) fn look<R: Rig>(rig: &mut R) -> Option<Sent> {
    let arrival = rig.rx().look()?;
    // SAFETY: valid until it is taken.
    let data = unsafe { std::slice::from_raw_parts(arrival.data(), arrival.len()) };
    Some(Sent { header: arrival.header, data: data.to_vec() })
}

/// Makes the tests of one transport.
macro_rules! conform {
    ($name:ident, $rig:ty) => {
        mod $name {
            use super::super::rules;
            #[allow(unused_imports)]
            use super::*;

            #[test]
            fn capabilities__are_consistent() {
                rules::capabilities_are_consistent::<$rig>();
            }
            #[test]
            fn sizes__all_arrive_unchanged() {
                rules::all_sizes_arrive::<$rig>();
            }
            #[test]
            fn look__shows_the_same_until_taken() {
                rules::look_changes_nothing::<$rig>();
            }
            #[test]
            fn refusal__leaves_no_trace() {
                rules::refusal_leaves_no_trace::<$rig>();
            }
            #[test]
            fn credits__all_come_back() {
                rules::credits_come_back::<$rig>();
            }
            #[test]
            fn programs__keep_order_and_content() {
                rules::random_programs::<$rig>();
            }
        }
    };
}
pub(crate) use conform;
