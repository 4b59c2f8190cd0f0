//! Conformance tests: the rules of the contract, run on every transport.
//!
//! A [`Rig`] adapts a transport: two ends of one direction, a way to advance time, and the receiver's observable state.
//! A macro creates one test for each rule.
#![allow(unsafe_code, non_snake_case)]

mod rigs;
mod rules;

use crate::contract::{Endpoint, Header, Post};
use std::iter;
use std::sync::OnceLock;

pub(crate) trait Rig {
    type End: Endpoint;
    fn new(start: Start) -> Self;
    fn tx(&mut self) -> &mut Self::End;
    fn rx(&mut self) -> &mut Self::End;
    fn settle(&mut self);
    fn return_credits(&mut self);
    fn observe(&mut self) -> Vec<u8>;
    /// Whether room for messages is limited by more than memory, so that posts are refused.
    const LIMITED: bool = true;
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Start {
    pub messages: u32,
    pub bytes: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SentMessage {
    pub header: Header,
    pub data: Vec<u8>,
}

/// Largest payload, in bytes, of messages whose `aux` need not arrive. It is at most `Capabilities::short` of every
/// transport.
const SHORT_MAX: usize = 48;

impl SentMessage {
    pub fn numbered(number: u32, len: usize) -> Self {
        let header = Header {
            aux: if len > SHORT_MAX { !number as u16 } else { 0 },
            ..Header::new(
                number as u8,
                number.wrapping_mul(0x9e37_79b9),
                (number as u64) << 32 | !number as u64,
            )
        };
        // All messages share one pattern, at different offsets: filling each would dominate the tests' time.
        let from = number.wrapping_mul(0x9e37_79b9) as usize % PATTERN_BYTES;
        let round = iter::once(&pattern()[from..]).chain(iter::repeat(pattern()));
        let mut data = Vec::with_capacity(len);
        for part in round {
            data.extend_from_slice(&part[..part.len().min(len - data.len())]);
            if data.len() == len {
                break;
            }
        }
        SentMessage { header, data }
    }
}

/// Length of the pattern: a prime, so that no part of a ring or of its data area is a multiple of it.
const PATTERN_BYTES: usize = 65_521;

fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let byte = |i: u32| i.wrapping_mul(0x9e37_79b9).to_le_bytes()[3];
        (0..PATTERN_BYTES as u32).map(byte).collect()
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendForm {
    Short,
    Bcopy,
}

pub(crate) fn post<R: Rig>(rig: &mut R, way: SendForm, sent: &SentMessage) -> bool {
    let mut packed = false;
    let len = sent.data.len();
    let answer = match way {
        // SAFETY: the data holds `len` bytes, which live until the call returns.
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

pub(crate) fn look<R: Rig>(rig: &mut R) -> Option<SentMessage> {
    let arrival = rig.rx().look()?;
    // SAFETY: an arrival is valid until it is taken.
    let data = unsafe { std::slice::from_raw_parts(arrival.data(), arrival.len()) };
    Some(SentMessage { header: arrival.header, data: data.to_vec() })
}

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
