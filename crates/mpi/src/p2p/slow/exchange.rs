//! Send and receive in one call: `MPI_Sendrecv` and the forms that replace the buffer.
//!
//! **USER'S BUFFER.** The contract of the parent module holds for the send buffer and for the receive buffer. The two
//! buffers do not overlap, unless a copy is sent.
#![allow(unsafe_code)]

use super::*;

/// `MPI_Sendrecv`: sends first if the message can leave immediately. Otherwise it posts the receive, starts the send,
/// and waits for both.
///
/// # Safety
/// See USER'S BUFFER.
#[inline(always)] // `fastpath bench instructions` counts MPI_Sendrecv
pub unsafe fn sendrecv(name: &'static str, out: Args, into: Args, status: *mut Status) -> Result {
    // SAFETY: USER'S BUFFER.
    unsafe {
        if out.buf != into.buf
            && let Some(result) = send_and_recv(name, &out, &into, status)
        {
            return result;
        }
        sendrecv_slow(name, out, into, status)
    }
}

/// Sends, then receives. Returns `None`, without effect, if the send might block until the receive is posted, or if
/// [`is_plain_recv`] does not accept the receive.
#[inline(always)] // see `sendrecv`
unsafe fn send_and_recv(
    name: &'static str, out: &Args, into: &Args, status: *mut Status,
) -> Option<Result> {
    if into.comm != out.comm || !is_plain_recv(into) {
        return None;
    }
    // SAFETY: USER'S BUFFER.
    unsafe {
        match send_first(out, into, status) {
            FirstSend::Declined => None,
            FirstSend::Sent(sent) => Some(recv_after(name, sent, *into, status)),
            FirstSend::Received => Some(Ok(())),
        }
    }
}

/// Receives, unless the preceding send has failed. In that case, returns the error of the send.
#[inline(never)]
unsafe fn recv_after(name: &'static str, sent: Result, into: Args, status: *mut Status) -> Result {
    sent?;
    // SAFETY: USER'S BUFFER.
    unsafe { poll_recv::<true>(name, into, status) }
}

#[cold]
#[inline(never)]
unsafe fn sendrecv_slow(name: &'static str, out: Args, into: Args, status: *mut Status) -> Result {
    if out.buf == into.buf {
        let p = process::enter(name, false)?;
        refuse_alias(&p, &out, &into)?;
        drop(p);
        // SAFETY: USER'S BUFFER.
        if let Some(result) = unsafe { send_and_recv(name, &out, &into, status) } {
            return result;
        }
    }
    let p = process::enter(name, false)?;
    let receive = check_recv(&p, &into)?;
    let send = check_send(&p, &out)?;
    let worker = p.worker()?;
    // SAFETY: USER'S BUFFER.
    unsafe {
        let receiving = match &receive {
            Some(checked) => Some(start_recv(&p, checked, &into)?),
            None => None,
        };
        let (mut result, mut loaded, mut hopeless) = (Ok(()), Ok(()), false);
        if let Some(checked) = &send {
            match start_send(&p, checked, &out, Mode::Standard) {
                Ok(StartOutcome::Done) => {}
                Ok(StartOutcome::Request(id)) => {
                    wait_complete(
                        worker,
                        id,
                        &note(name, &checked.comm, &out, checked.buffer.bytes),
                    );
                    loaded = settle(&p, id);
                    let fault = (*worker).requests.get(id).fault;
                    (*worker).free_failed(id);
                    if fault != Fault::None {
                        result = Err(explain(fault, &out, checked.buffer.bytes, 0));
                        hopeless = fault == Fault::NoMemory;
                    }
                }
                Err(error) => result = Err(error),
            }
        }
        match (receive, receiving) {
            (Some(checked), Some(id)) => {
                if result.is_err() {
                    (*worker).cancel_recv(id);
                }
                if hopeless {
                    // The receive is dropped, because the peer may also lack memory and send nothing.
                    (*worker).drop_recv(id);
                    staged::forget(&p, id);
                    return result;
                }
                wait_complete(worker, id, &note(name, &checked.comm, &into, checked.buffer.bytes));
                let stored = settle(&p, id);
                let received = finish_recv(worker, id, &into, status);
                result.and(loaded).and(received).and(stored)
            }
            _ => {
                fill_status(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
                result.and(loaded)
            }
        }
    }
}

/// Outcome of a send that precedes the receive of its call.
enum FirstSend {
    Declined,
    Sent(Result),
    /// The message was sent, and the call's receive is complete.
    Received,
}

/// Sends the message of an `MPI_Sendrecv` immediately, if the path to the peer allows that.
///
/// # Safety
/// See USER'S BUFFER. The receive will pass its checks.
#[inline(always)] // `fastpath bench instructions` counts MPI_Sendrecv
unsafe fn send_first(out: &Args, into: &Args, status: *mut Status) -> FirstSend {
    // SAFETY: USER'S BUFFER.
    unsafe {
        if lock::is_enabled() {
            if !hot::sends_inside(out.comm) {
                return FirstSend::Declined;
            }
            let mut received = false;
            let take = || received = take_arrived::<{ hot::INSIDE }>(*into, status);
            return match send_with_lock::<false>(*out, is_near(out), take) {
                None => FirstSend::Declined,
                Some(Ok(())) if received => FirstSend::Received,
                Some(sent) => FirstSend::Sent(sent),
            };
        }
        match try_send::<false, { hot::OPEN }>(*out) {
            Immediate::Done if take_arrived::<{ hot::OPEN }>(*into, status) => FirstSend::Received,
            Immediate::Done => FirstSend::Sent(Ok(())),
            Immediate::Wake(bytes) => FirstSend::Sent(wake(out.comm, out.peer, out.tag, bytes)),
            // Only a send within the host may precede the receive: during a send by an adapter, the incoming message
            // may arrive before its receive is posted.
            Immediate::Declined if is_near(out) && try_send_eager::<{ hot::OPEN }>(*out) => {
                FirstSend::Sent(Ok(()))
            }
            Immediate::Declined => FirstSend::Declined,
        }
    }
}

/// Receives a short message if it has arrived. Returns whether it was received.
///
/// # Safety
/// See [`try_copy`].
#[inline(always)] // see `send_first`
unsafe fn take_arrived<const WAY: u8>(args: Args, status: *mut Status) -> bool {
    // SAFETY: USER'S BUFFER.
    match unsafe { try_copy::<WAY>(args, status) } {
        Some(slot) => {
            // SAFETY: the message has just been copied.
            unsafe { slot.take() };
            true
        }
        None => false,
    }
}

/// Sends immediately inside the lock, and calls `after` there if that succeeded. Returns `None` if the send is
/// declined. With `eager`, also sends messages of several parts.
///
/// # Safety
/// See [`try_send`].
pub unsafe fn send_with_lock<const MORE: bool>(
    args: Args, eager: bool, after: impl FnOnce(),
) -> Option<Result> {
    let mut result = Ok(());
    let sent = lock::with_lock(|| {
        // SAFETY: USER'S BUFFER.
        let sent = match unsafe { try_send::<MORE, { hot::INSIDE }>(args) } {
            Immediate::Done => true,
            // SAFETY: USER'S BUFFER.
            Immediate::Declined => eager && unsafe { try_send_eager::<{ hot::INSIDE }>(args) },
            Immediate::Wake(bytes) => {
                result = wake(args.comm, args.peer, args.tag, bytes);
                true
            }
        };
        if sent && result.is_ok() {
            after();
        }
        sent
    });
    sent.then_some(result)
}

/// Returns whether the peer is on this host and its communicator is in the hot tables.
fn is_near(args: &Args) -> bool {
    let comm = hot::comm(args.comm);
    // SAFETY: a matching key means that the entry is a live communicator with an endpoint for each rank below `size`.
    (hot::sends_openly(args.comm) || hot::sends_inside(args.comm))
        && (args.peer as u32) < comm.size
        && unsafe { (**comm.endpoints.add(args.peer as usize)).is_same_host() }
}

/// With checks, refuses a send and a receive of one buffer, unless one of them moves nothing (MPI-5.0 section 3.10).
/// Without checks, one buffer for both is allowed: many programs do so, and it works for messages that leave
/// immediately.
#[cold]
#[inline(never)]
pub(crate) fn refuse_alias(p: &Process, out: &Args, into: &Args) -> Result {
    if p.checks().is_none() {
        return Ok(());
    }
    let (Some(send), Some(receive)) = (check_send(p, out)?, check_recv(p, into)?) else {
        return Ok(());
    };
    let (from, to) = (&send.buffer, &receive.buffer);
    if from.bytes == 0 || to.bytes == 0 || !from.is_same(to) {
        return Ok(());
    }
    let text = format!("send and receive buffer are the same, at {:p}", from.ptr);
    let advice = "call MPI_Sendrecv_replace, or pass two buffers";
    Err(Error::new(MPI_ERR_BUFFER, text).with_advice(Some(advice)))
}

/// Returns the packed contents of a send buffer, at least one byte long. Safety: see USER'S BUFFER.
pub(crate) unsafe fn pack_copy(p: &Process, args: &Args) -> Result<(Box<[u8]>, i64)> {
    let checked = checked::check(p, args)?;
    staged::load(&checked)?;
    let bytes = checked.buffer.bytes as usize;
    let mut copy = vec![0_u8; bytes.max(1)].into_boxed_slice();
    // SAFETY: USER'S BUFFER; the copy has the message's length.
    unsafe {
        match &checked.buffer.layout {
            None if bytes > 0 => {
                fastpath_base::copy::copy(copy.as_mut_ptr(), checked.buffer.ptr, bytes)
            }
            None => {}
            Some(layout) => {
                layout.pack(checked.buffer.ptr, checked.buffer.count, 0, &mut copy[..bytes]);
            }
        }
    }
    staged::finish_send(&checked)?;
    Ok((copy, bytes as i64))
}

/// `MPI_Sendrecv_replace`: sends from a copy of the buffer.
///
/// # Safety
/// The buffer must be readable and writable for both counts and datatypes.
pub unsafe fn sendrecv_replace(p: &Process, out: Args, into: Args, status: *mut Status) -> Result {
    // SAFETY: USER'S BUFFER.
    unsafe {
        let (mut copy, bytes) = pack_copy(p, &out)?;
        let out = Args { buf: copy.as_mut_ptr(), count: bytes, datatype: MPI_PACKED, ..out };
        sendrecv("MPI_Sendrecv_replace", out, into, status)
    }
}
