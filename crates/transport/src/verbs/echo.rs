//! Ping-pong between two connected queue pairs of one device. It measures the cost of a message size, with inline
//! payload and with DMA, and needs no second host.
#![allow(unsafe_code)]

use super::abi::{Sge, Wc};
use super::device::DeviceContext;
use super::error::VerbsError;
use super::inline::{InlineChoice, InlineError};
use super::memory::{Access, Buffer, ProtectionDomain};
use super::path::{LocalPort, PortAddress};
use super::post::{Failure, PostError, SendFlags, SendOperation, failure};
use super::qp::{PairSettings, QueuePair, RemoteQp, RetryConfig, Service};
use super::queue::{CompletionQueue, RecvEntry};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of outstanding sends of an end.
const DEPTH: u32 = 64;
const REPORTED: u32 = 16;
const POLLS: u32 = 256;

/// Operation that carries the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Send to a receive buffer; a completion reports the arrival.
    Send,
    /// Write of at least one byte to the other end's memory. The other end polls the last byte.
    Write,
}

/// Cause of a failed exchange.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EchoError {
    /// A call failed.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// The payload must go inline and does not fit.
    #[error("{}", describe_inline(*.0))]
    Inline(InlineError),
    /// The payload is longer than the buffers, or it is a write of 0 bytes.
    #[error(
        "the device cannot send {0} bytes to itself: the buffer is smaller, or the operation is a \
         write of 0 bytes"
    )]
    Size(u32),
    /// A send or a receive failed.
    #[error("{}", describe_failure(.0))]
    Failed(Failure),
    /// No answer within this time. The device does not carry packets to itself.
    #[error(
        "no packet came back within {} s: the device does not carry packets between two of its own \
         queue pairs",
        .0.as_secs_f64()
    )]
    NoAnswer(Duration),
    /// The received bytes differ from those sent.
    #[error("the bytes that came back from the device differ from the bytes sent to it")]
    Garbled,
}

fn describe_inline(error: InlineError) -> String {
    match error {
        InlineError::TooLong { bytes, granted } => format!(
            "{bytes} bytes cannot be sent inline: the queue pair has {granted} bytes of inline data"
        ),
        InlineError::NoPayload => "an operation without a payload cannot be sent inline".to_owned(),
    }
}

fn describe_failure(failure: &Failure) -> String {
    match failure {
        Failure::NoAnswer => {
            "no answer: the device's port carries no packets between two queue pairs of the device"
                .to_owned()
        }
        why => format!("a send to the device itself failed: {why}"),
    }
}

/// Port of a device, and resources for queue pairs on it.
pub struct EchoPort {
    pub(super) domain: Arc<ProtectionDomain>,
    pub(super) port: LocalPort,
    cq: Arc<CompletionQueue>,
    pub(super) segments: u32,
}

impl EchoPort {
    /// Opens port `port`, or the first active one.
    ///
    /// # Errors
    /// No port is active or has an address, or the device has not enough resources.
    pub fn new(context: &Arc<DeviceContext>, port: Option<u8>) -> Result<Self, VerbsError> {
        Ok(EchoPort {
            port: LocalPort::choose(context, port)?,
            domain: ProtectionDomain::new(context)?,
            cq: CompletionQueue::new(context, 16, None)?,
            segments: 1,
        })
    }

    /// Port number, from 1.
    pub fn port(&self) -> u8 {
        self.port.number()
    }

    /// Creates an unused reliable queue pair, to read its granted limits and measure the cost of its creation.
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

    /// Creates two connected queue pairs for up to `most` bytes, which wait up to `timeout` for an answer.
    ///
    /// # Errors
    /// The device refuses; nothing is left behind.
    pub fn connect(&self, inline: u32, most: u32, timeout: Duration) -> Result<Echo, VerbsError> {
        self.connect_by(&self.port.address(), inline, most, timeout)
    }

    pub(super) fn connect_by(
        &self, address: &PortAddress, inline: u32, most: u32, timeout: Duration,
    ) -> Result<Echo, VerbsError> {
        let ends = [self.end(inline, most)?, self.end(inline, most)?];
        let path = self.port.path_to(address)?;
        for (end, other) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
            let peer = RemoteQp { path, qpn: other.pair.qpn(), psn: 1 };
            // No packets are lost within a device, so few retries suffice.
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
    pub(super) buffer: Buffer,
    pub(super) room: u32,
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
        // SAFETY: the room is the second half of `buffer`, which is dropped after `pair`.
        unsafe { self.pair.post_recv(&[entry]) }.map_err(|(_, error)| error)
    }

    /// Clears the last incoming byte, so that the poll cannot take an old byte for the next message.
    fn forget_last(&self, bytes: u32) {
        if let Some(last) = bytes.checked_sub(1) {
            // SAFETY: the byte is within the room, as `exchange` checked. No write to it is outstanding: the last
            // message arrived.
            unsafe { self.incoming().add(last as usize).write_volatile(0) };
        }
    }

    fn last(&self, bytes: u32) -> u8 {
        // SAFETY: `bytes` is from 1 to the room's size, as `exchange` checked. Volatile, because the device writes it.
        unsafe { self.incoming().add(bytes as usize - 1).read_volatile() }
    }

    fn post(
        &mut self, verb: Verb, bytes: u32, stamp: u8, inline: InlineChoice, to: (u64, u32),
    ) -> Result<(), EchoError> {
        let out = self.buffer.address();
        if let Some(last) = bytes.checked_sub(1) {
            // SAFETY: the byte is within the first half, as `exchange` checked; the last message from there has
            // arrived.
            unsafe { out.add(last as usize).write_volatile(stamp) };
        }
        let operation = match verb {
            Verb::Send => SendOperation::Send,
            Verb::Write => SendOperation::Write { address: to.0, rkey: to.1 },
        };
        let flags =
            SendFlags { signaled: self.silent + 1 == REPORTED, inline, ..SendFlags::default() };
        let segment = [Sge::over(out, bytes as usize, self.buffer.region().lkey())];
        // SAFETY: `buffer` is dropped after `pair`, and is written again only after this message has arrived.
        let posted = unsafe { self.pair.post_send(0, &operation, &segment, flags) };
        match posted {
            Ok(_) => {
                self.silent = (self.silent + 1) % REPORTED;
                Ok(())
            }
            Err(PostError::Inline(why)) => Err(EchoError::Inline(why)),
            Err(PostError::Failed(error)) => Err(error.into()),
            // A full queue is a failure: each 16th send is signaled, and completes during the wait for an answer.
            Err(PostError::Full) => Err(EchoError::Failed(Failure::Local)),
        }
    }

    #[inline]
    fn reap(&self) -> Result<(), EchoError> {
        take(&self.send_cq).map(|_| ())
    }

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

/// Two queue pairs that exchange messages. Unusable after an error.
pub struct Echo {
    pub(super) ends: [QueueEnd; 2],
    stamp: u8,
    timeout: Duration,
}

impl Echo {
    /// Inline bytes that the device granted to both queue pairs.
    pub fn granted_inline(&self) -> u32 {
        let [a, b] = &self.ends;
        a.pair.granted_inline().min(b.pair.granted_inline())
    }

    /// Exchanges `count` messages of `bytes` bytes and as many answers, with the inline choice `inline`.
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
            // Memory is initialized to 0, so stamps are not 0.
            self.stamp = self.stamp % 255 + 1;
            self.pass(0, verb, bytes, inline)?;
            self.pass(1, verb, bytes, inline)?;
        }
        Ok(())
    }

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
                // If nothing arrives, the sender's completion has the cause.
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
        let port = EchoPort::new(&context, None).unwrap();
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
        let port = EchoPort::new(&context, None).unwrap();
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
        let port = EchoPort::new(&context, None).unwrap();
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
        let port = EchoPort::new(&context, None).unwrap();
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
        let port = EchoPort::new(&context, None).unwrap();
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
        let make = || EchoPort::new(&context, None)?.connect(64, 64, TIMEOUT).map(|_| ());
        fault::fail_each_step(&wanted, make, |_, _| {});
    }
}
