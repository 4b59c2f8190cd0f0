//! Messages that a collective call or the creation of a communicator sends among its members.
//!
//! They travel in the communicator's collective context, never match a user's receive, and do not
//! appear in the profiling interface.

#![allow(unsafe_code)]

use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::process::Process;
use fastpath_protocol::buffer::Buffer;

/// A started send or receive. Must be waited for.
#[must_use]
#[derive(Debug)]
pub struct Ticket(#[allow(dead_code)] u32);

/// The way from this process to the other members of one communicator, for one collective call.
pub struct Channel<'a> {
    /// The process.
    pub process: &'a Process,
    /// The communicator.
    pub comm: &'a Comm,
    /// The internal tag, below 0, that this call's messages carry.
    pub tag: i32,
}

impl<'a> Channel<'a> {
    /// The channel of the next collective call on `comm`; all members make them in the same order.
    pub fn next(process: &'a Process, comm: &'a Comm) -> Self {
        let sequence = comm.collective_sequence.get();
        comm.collective_sequence.set(sequence.wrapping_add(1));
        Channel { process, comm, tag: -16 - (sequence & 0xff_ffff) as i32 }
    }

    /// A channel with a tag of the caller's choice (0 or more), for calls that only some members
    /// make (`MPI_Comm_create_group`).
    pub fn tagged(process: &'a Process, comm: &'a Comm, tag: i32) -> Self {
        Channel { process, comm, tag }
    }

    /// Sends and returns when the buffer may be reused.
    ///
    /// # Safety
    /// The buffer is readable as its layout says.
    pub unsafe fn send(&self, to: u32, data: Buffer) -> Result {
        let _ = (to, data);
        Err(Error::unsupported("Channel::send"))
    }

    /// Receives and returns when the data is there. A longer message is an error.
    ///
    /// # Safety
    /// The buffer is writable as its layout says.
    pub unsafe fn recv(&self, from: u32, data: Buffer) -> Result {
        let _ = (from, data);
        Err(Error::unsupported("Channel::recv"))
    }

    /// Sends to one member and receives from another at the same time; cannot deadlock.
    ///
    /// # Safety
    /// As [`Channel::send`] and [`Channel::recv`]; the buffers do not overlap.
    pub unsafe fn exchange(&self, to: u32, out: Buffer, from: u32, into: Buffer) -> Result {
        let _ = (to, out, from, into);
        Err(Error::unsupported("Channel::exchange"))
    }

    /// Starts a send.
    ///
    /// # Safety
    /// As [`Channel::send`], until the ticket has been waited for.
    pub unsafe fn start_send(&self, to: u32, data: Buffer) -> Result<Ticket> {
        let _ = (to, data);
        Err(Error::unsupported("Channel::start_send"))
    }

    /// Starts a receive.
    ///
    /// # Safety
    /// As [`Channel::recv`], until the ticket has been waited for.
    pub unsafe fn start_recv(&self, from: u32, data: Buffer) -> Result<Ticket> {
        let _ = (from, data);
        Err(Error::unsupported("Channel::start_recv"))
    }

    /// Waits for one operation.
    pub fn wait(&self, ticket: Ticket) -> Result {
        let _ = ticket;
        Err(Error::unsupported("Channel::wait"))
    }

    /// Waits for all; the first error is returned after all have ended.
    pub fn wait_all(&self, tickets: Vec<Ticket>) -> Result {
        tickets.into_iter().map(|ticket| self.wait(ticket)).fold(Ok(()), Result::and)
    }
}
