//! Two queue pairs of one device, connected to each other: one sends, the other answers with as many bytes. What a
//! size takes can so be measured without a second host, with the payload inline and by DMA in turn.
#![allow(unsafe_code)]

use super::abi::{Sge, Wc};
use super::device::DeviceContext;
use super::error::VerbsError;
use super::inline::{InlineChoice, InlineRefused};
use super::memory::{Access, Buffer, ProtectionDomain};
use super::path::{LocalPort, PortAddress};
use super::post::{Failure, Operation, PostError, SendFlags, failure};
use super::qp::{PairSettings, Peer, QueuePair, RetryConfig, Service};
use super::queue::{CompletionQueue, RecvEntry};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sends of an end under way at most, and every which one is reported.
const DEPTH: u32 = 64;
const REPORTED: u32 = 16;
/// Looks between two at the clock.
const POLLS: u32 = 256;

/// How the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// As a message to a receive buffer, which a completion announces.
    Send,
    /// Into the other's memory, which looks at the last byte. At least one byte.
    Write,
}

/// Why an echo did not come back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EchoError {
    /// A call failed.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// The payload was to go inline and cannot.
    #[error("the payload cannot go inline: {0:?}")]
    Inline(InlineRefused),
    /// Longer than the buffers, or a write of nothing.
    #[error("{0} bytes cannot be sent here")]
    Size(u32),
    /// A send or a receive failed.
    #[error("{}", describe_failure(.0))]
    Failed(Failure),
    /// Nothing came back for so long: the device does not carry its own packets back.
    #[error(
        "nothing came back within {} s: the device does not carry packets to itself",
        .0.as_secs_f64()
    )]
    NoAnswer(Duration),
    /// What came is not what was sent.
    #[error("what came back from the device is not what was sent to it")]
    Garbled,
}

fn describe_failure(failure: &Failure) -> String {
    match failure {
        Failure::NoAnswer => {
            "the device does not answer itself: its port carries no packets back to it".to_owned()
        }
        why => format!("a send to the device itself failed: {why:?}"),
    }
}

/// A port of a device, with what queue pairs on it need.
pub struct Loop {
    pub(super) domain: Arc<ProtectionDomain>,
    pub(super) port: LocalPort,
    /// Where pairs complete that are only made to be looked at.
    cq: Arc<CompletionQueue>,
    /// Pieces of memory of one send at most.
    pub(super) segments: u32,
}

impl Loop {
    /// The port `port`, or else the first active one.
    ///
    /// # Errors
    /// No port is active or has an address, or the device has no more of what is needed.
    pub fn new(context: &Arc<DeviceContext>, port: Option<u8>) -> Result<Self, VerbsError> {
        Ok(Loop {
            port: LocalPort::choose(context, port)?,
            domain: ProtectionDomain::new(context)?,
            cq: CompletionQueue::new(context, 16, None)?,
            segments: 1,
        })
    }

    /// The port's number, from 1.
    pub fn port(&self) -> u8 {
        self.port.number()
    }

    /// A reliable queue pair that nobody uses: for what it was granted, and what it costs while it lives.
    ///
    /// # Errors
    /// The device refuses.
    pub fn make_pair(&self, inline: u32, depth: u32) -> Result<QueuePair, VerbsError> {
        self.pair(inline, depth, [&self.cq, &self.cq])
    }

    fn pair(
        &self, inline: u32, depth: u32, [send_cq, recv_cq]: [&Arc<CompletionQueue>; 2],
    ) -> Result<QueuePair, VerbsError> {
        QueuePair::new(
            &self.domain,
            &PairSettings {
                service: Service::Reliable,
                send_cq,
                recv_cq,
                shared: None,
                send_depth: depth,
                recv_depth: 1,
                send_segments: self.segments,
                inline,
                port: self.port.number(),
                qkey: 0,
            },
        )
    }

    /// Two connected queue pairs that ask for `inline` bytes of inline data and carry up to `most` bytes, and wait
    /// `spin-budget` for an answer.
    ///
    /// # Errors
    /// The device refuses; nothing is left behind.
    pub fn connect(&self, inline: u32, most: u32, timeout: Duration) -> Result<Echo, VerbsError> {
        self.connect_by(&self.port.address(), inline, most, timeout)
    }

    /// The same by an address of the port that may not be right.
    pub(super) fn connect_by(
        &self, address: &PortAddress, inline: u32, most: u32, timeout: Duration,
    ) -> Result<Echo, VerbsError> {
        let ends = [self.end(inline, most)?, self.end(inline, most)?];
        let path = self.port.path_to(address)?;
        for (end, other) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
            let peer = Peer { path, qpn: other.pair.qpn(), psn: 1 };
            // Packets do not get lost within a device.
            let retry_config = RetryConfig { retries: 2, ..RetryConfig::default() };
            end.pair.connect(&peer, 1, &retry_config)?;
            end.post_receive()?;
        }
        Ok(Echo { ends, stamp: 0, timeout })
    }

    fn end(&self, inline: u32, most: u32) -> Result<QueueEnd, VerbsError> {
        let context = self.domain.context();
        let send_cq = CompletionQueue::new(context, 2 * DEPTH, None)?;
        let recv_cq = CompletionQueue::new(context, 16, None)?;
        let pair = self.pair(inline, DEPTH, [&send_cq, &recv_cq])?;
        let room = most.max(1).next_multiple_of(64);
        Ok(QueueEnd {
            pair,
            send_cq,
            recv_cq,
            buffer: Buffer::new(&self.domain, 2 * room as usize, Access::Remote)?,
            room,
            silent: 0,
        })
    }
}

pub(super) struct QueueEnd {
    pub(super) pair: QueuePair,
    pub(super) send_cq: Arc<CompletionQueue>,
    pub(super) recv_cq: Arc<CompletionQueue>,
    /// What goes out, then room for what comes in.
    pub(super) buffer: Buffer,
    /// Bytes of each half.
    pub(super) room: u32,
    /// Sends since the last that is reported.
    silent: u32,
}

impl QueueEnd {
    pub(super) fn incoming(&self) -> *mut u8 {
        self.buffer.address().wrapping_add(self.room as usize)
    }

    pub(super) fn post_receive(&self) -> Result<(), VerbsError> {
        let lkey = self.buffer.region().lkey();
        let entry =
            RecvEntry { id: 0, segment: Sge::over(self.incoming(), self.room as usize, lkey) };
        // SAFETY: the room is the buffer's second half, and `buffer` is dropped after `pair`.
        unsafe { self.pair.post_recv(&[entry]) }.map_err(|(_, error)| error)
    }

    /// Forgets what came in before, so that it is not taken for what is to come.
    fn forget_last(&self, bytes: u32) {
        if let Some(last) = bytes.checked_sub(1) {
            // SAFETY: within the room, as `exchange` checked; nothing is on its way there: the last that was sent has
            // come.
            unsafe { self.incoming().add(last as usize).write_volatile(0) };
        }
    }

    /// The last byte that has come in, of `bytes`.
    fn last(&self, bytes: u32) -> u8 {
        // SAFETY: within the room, as `exchange` checked, and `bytes` is not 0. Volatile: the device writes it.
        unsafe { self.incoming().add(bytes as usize - 1).read_volatile() }
    }

    fn post(
        &mut self, verb: Verb, bytes: u32, stamp: u8, inline: InlineChoice, to: (u64, u32),
    ) -> Result<(), EchoError> {
        let out = self.buffer.address();
        if let Some(last) = bytes.checked_sub(1) {
            // SAFETY: within the first half, as `exchange` checked; what went out of it before has arrived.
            unsafe { out.add(last as usize).write_volatile(stamp) };
        }
        let operation = match verb {
            Verb::Send => Operation::Send,
            Verb::Write => Operation::Write { address: to.0, rkey: to.1 },
        };
        let flags =
            SendFlags { signaled: self.silent + 1 == REPORTED, inline, ..SendFlags::default() };
        let segment = [Sge::over(out, bytes as usize, self.buffer.region().lkey())];
        // SAFETY: `buffer` is dropped after `pair`, and is written again only once this message has arrived.
        let posted = unsafe { self.pair.post_send(0, &operation, &segment, flags) };
        match posted {
            Ok(_) => {
                self.silent = (self.silent + 1) % REPORTED;
                Ok(())
            }
            Err(PostError::Inline(why)) => Err(EchoError::Inline(why)),
            Err(PostError::Failed(error)) => Err(error.into()),
            // Each 16th is reported and taken while waiting for its answer.
            Err(PostError::Full) => Err(EchoError::Failed(Failure::Local)),
        }
    }

    /// Takes what is done of the sends.
    #[inline]
    fn reap(&self) -> Result<(), EchoError> {
        take(&self.send_cq).map(|_| ())
    }

    /// Whether the next of the other's bytes are here.
    #[inline]
    fn has_arrived(&self, verb: Verb, bytes: u32, stamp: u8) -> Result<bool, EchoError> {
        self.reap()?;
        if verb == Verb::Write {
            return Ok(self.last(bytes) == stamp);
        }
        let Some(completion) = take(&self.recv_cq)? else {
            return Ok(false);
        };
        if completion.byte_len != bytes || bytes > 0 && self.last(bytes) != stamp {
            return Err(EchoError::Garbled);
        }
        self.post_receive()?;
        Ok(true)
    }
}

#[inline]
fn take(queue: &CompletionQueue) -> Result<Option<Wc>, EchoError> {
    let mut batch = [Wc::default()];
    if queue.poll(&mut batch)? == 0 {
        return Ok(None);
    }
    match failure(&batch[0]) {
        Some(why) => Err(EchoError::Failed(why)),
        None => Ok(Some(batch[0])),
    }
}

/// Two queue pairs that answer each other. After an error it is of no more use.
pub struct Echo {
    pub(super) ends: [QueueEnd; 2],
    stamp: u8,
    timeout: Duration,
}

impl Echo {
    /// Bytes that may go inline, as the device granted them to both.
    pub fn granted_inline(&self) -> u32 {
        let [a, b] = &self.ends;
        a.pair.granted_inline().min(b.pair.granted_inline())
    }

    /// So many messages of `bytes` bytes there, each with its answer back. All go as `inline` says.
    ///
    /// # Errors
    /// See [`EchoError`].
    pub fn exchange(
        &mut self, verb: Verb, bytes: u32, inline: InlineChoice, count: u64,
    ) -> Result<(), EchoError> {
        if bytes > self.ends[0].room || bytes == 0 && verb == Verb::Write {
            return Err(EchoError::Size(bytes));
        }
        for _ in 0..count {
            // Zero is what the memory holds before.
            self.stamp = self.stamp % 255 + 1;
            self.pass(0, verb, bytes, inline)?;
            self.pass(1, verb, bytes, inline)?;
        }
        Ok(())
    }

    /// One message from an end to the other.
    fn pass(
        &mut self, from: usize, verb: Verb, bytes: u32, inline: InlineChoice,
    ) -> Result<(), EchoError> {
        let far = &self.ends[1 - from];
        far.forget_last(bytes);
        let to = (far.incoming() as u64, far.buffer.region().rkey());
        self.ends[from].post(verb, bytes, self.stamp, inline, to)?;
        let mut began = None;
        loop {
            for _ in 0..POLLS {
                if self.ends[1 - from].has_arrived(verb, bytes, self.stamp)? {
                    return Ok(());
                }
                // Where the peer is silent, the sender's completion says why.
                self.ends[from].reap()?;
            }
            let began = *began.get_or_insert_with(Instant::now);
            if began.elapsed() > self.timeout {
                return Err(EchoError::NoAnswer(self.timeout));
            }
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::{VerbsCall, fake, fault, test_device};
    use super::*;
    use crate::verbs::abi::{SEND_INLINE, SEND_SIGNALED, WR_RDMA_WRITE, WR_SEND};

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[test]
    fn exchange__carries_every_size_both_ways_and_as_wished() {
        let (context, _) = test_device();
        let port = Loop::new(&context, None).unwrap();
        let mut echo = port.connect(200, 4096, TIMEOUT).unwrap();
        let granted = echo.granted_inline();
        assert!(granted >= 200, "{granted}");
        for verb in [Verb::Send, Verb::Write] {
            for bytes in [1, 8, granted, granted + 1, 4096] {
                for choice in [InlineChoice::Force, InlineChoice::Forbid] {
                    let done = echo.exchange(verb, bytes, choice, 40);
                    match choice == InlineChoice::Force && bytes > granted {
                        true => assert!(matches!(done, Err(EchoError::Inline(_))), "{done:?}"),
                        false => assert_eq!(done, Ok(()), "{verb:?} {bytes} {choice:?}"),
                    }
                }
            }
        }
        echo.exchange(Verb::Send, 0, InlineChoice::Auto, 3).unwrap();
        let nothing = echo.exchange(Verb::Write, 0, InlineChoice::Auto, 1);
        assert_eq!(nothing, Err(EchoError::Size(0)));
        let long = echo.exchange(Verb::Send, 1 << 20, InlineChoice::Auto, 1);
        assert_eq!(long, Err(EchoError::Size(1 << 20)));
    }

    #[test]
    fn exchange__posts_what_was_wished_and_reports_each_16th() {
        let context = fake::open();
        fake::set_conditions(fake::Conditions::default());
        let port = Loop::new(&context, None).unwrap();
        let mut echo = port.connect(64, 64, TIMEOUT).unwrap();
        for (verb, opcode) in [(Verb::Send, WR_SEND), (Verb::Write, WR_RDMA_WRITE)] {
            for (choice, flag) in [(InlineChoice::Force, SEND_INLINE), (InlineChoice::Forbid, 0)] {
                fake::take_posted();
                echo.exchange(verb, 8, choice, 160).unwrap();
                let posted = fake::take_posted();
                assert_eq!(posted.len(), 320);
                assert!(
                    posted.iter().all(|&(op, flags)| op == opcode && flags & SEND_INLINE == flag)
                );
                let reported = posted.iter().filter(|(_, f)| f & SEND_SIGNALED != 0);
                assert_eq!(reported.count(), 20);
            }
        }
    }

    #[test]
    fn silence__is_an_error_after_the_timeout() {
        let context = fake::open();
        fake::set_conditions(fake::Conditions::default());
        let port = Loop::new(&context, None).unwrap();
        let mut echo = port.connect(64, 64, Duration::ZERO).unwrap();
        fake::set_conditions(fake::Conditions { pace: 0, ..fake::Conditions::default() });
        let silent = echo.exchange(Verb::Send, 8, InlineChoice::Auto, 1);
        assert_eq!(silent, Err(EchoError::NoAnswer(Duration::ZERO)));
        fake::set_conditions(fake::Conditions::default());
    }

    #[test]
    fn device__that_is_taken_out_is_an_error() {
        let context = fake::open();
        fake::set_conditions(fake::Conditions::default());
        let port = Loop::new(&context, None).unwrap();
        let mut echo = port.connect(64, 64, TIMEOUT).unwrap();
        fake::remove_device();
        let gone = echo.exchange(Verb::Send, 8, InlineChoice::Auto, 1);
        assert!(matches!(gone, Err(EchoError::Verbs(_))), "{gone:?}");
    }

    #[test]
    fn grant__is_read_back_and_none_is_one() {
        let context = fake::open();
        let with = |inline_step, inline_most| {
            fake::set_conditions(fake::Conditions {
                inline_step,
                inline_most,
                ..fake::Conditions::default()
            });
        };
        with(64, 512);
        let port = Loop::new(&context, None).unwrap();
        let granted = |inline| port.make_pair(inline, 128).unwrap().granted_inline();
        assert_eq!([0, 1, 64, 65, 512, 600].map(granted), [0, 64, 64, 128, 512, 320]);
        with(0, 512);
        assert_eq!(granted(100), 0);
        let mut echo = port.connect(100, 64, TIMEOUT).unwrap();
        let forced = echo.exchange(Verb::Send, 8, InlineChoice::Force, 1);
        assert!(matches!(forced, Err(EchoError::Inline(_))), "{forced:?}");
        with(64, 512);
    }

    #[test]
    fn failure__at_each_step_leaves_nothing_behind() {
        let (context, _) = test_device();
        let wanted =
            [VerbsCall::CreateQp, VerbsCall::QueryQp, VerbsCall::ModifyInit, VerbsCall::ModifyRts];
        let make = || Loop::new(&context, None)?.connect(64, 64, TIMEOUT).map(|_| ());
        fault::fail_each_step(&wanted, make, |_, _| {});
    }
}
