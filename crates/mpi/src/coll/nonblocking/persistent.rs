//! Persistent collective calls: requests that run an algorithm again at each start.
#![allow(unsafe_code)]

use super::super::agreement::compare_call;
use super::super::arguments::Collective;
use super::super::fabric::drive;
use super::{NonblockingCall, NonblockingFabric};
use crate::common::error::Result;
use crate::objects::comm::Comm;
use crate::p2p::channel::Channel;
use crate::p2p::request;
use crate::process::Process;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Makes an inactive persistent request of a call. Errors: those of `read` and of the checks.
///
/// # Safety
/// See [`Collective::run`], from each start to its completion.
pub(in super::super) unsafe fn prepare<C: Collective + 'static>(
    p: &Process, comm: Rc<Comm>, read: impl FnOnce(&Comm) -> Result<C>,
) -> Result<usize> {
    let f = NonblockingFabric::persistent(comm);
    let call = {
        // Compare the arguments here, not at a start: the messages of a start have this call's own tag, and match no
        // message of another call.
        let meeting = f.channel.refuse.get().map(|refuse| {
            let meeting = Channel::next(p, &f.comm);
            meeting.refuse.set(Some(refuse));
            meeting
        });
        let read = read(&f.comm).and_then(|call| check(&f, &call).map(|()| call));
        // Other ranks are notified of a refusal through `meeting`, if it exists, and not through `f`. A call that
        // [`Channel::take_back`] has removed from the count needs no notice.
        let was_taken_back = read.is_err() && f.channel.refuse.get().is_none();
        f.channel.refuse.set(None);
        if was_taken_back && let Some(meeting) = &meeting {
            meeting.take_back();
        }
        let call = read?;
        // Other threads may make calls during the comparison, and change the name of the call.
        let name = p.call.get();
        let compared = meeting.as_ref().map_or(Ok(()), |meeting| drive(compare_call(meeting)));
        p.call.set(name);
        compared?;
        call
    };
    let calls_back = call.calls_back();
    let kept = Rc::new((f, call));
    let own = kept.clone();
    let running = NonblockingCall::new(
        p,
        &kept.0,
        calls_back,
        Some(move || {
            let kept = own.clone();
            async move {
                let (f, call) = &*kept;
                f.begin();
                // SAFETY: the buffers are valid from each start to its completion, by this function's contract.
                unsafe { call.run(f).await }
            }
        }),
    );
    request::make_persistent_operation(p, Box::new(running))
}

/// Makes a persistent request of a call with checked arguments, which runs no functions of the program. Errors:
/// `MPI_ERR_COMM`; `MPI_ERR_OTHER` if no request is left.
pub(in super::super) fn prepare_checked<F>(
    p: &Process, comm: usize, call: impl Fn(Rc<NonblockingFabric>) -> F + 'static,
) -> Result<usize>
where
    F: Future<Output = Result> + 'static,
{
    let f = Rc::new(NonblockingFabric::persistent(p.comm(comm)?));
    let own = f.clone();
    let running = NonblockingCall::new(p, &f, false, Some(move || call(own.clone())));
    request::make_persistent_operation(p, Box::new(running))
}

/// Checks the arguments of a call without executing it.
fn check<C: Collective>(f: &NonblockingFabric, call: &C) -> Result {
    f.only_checks.set(true);
    // SAFETY: the call stops before it uses a buffer.
    let checks = pin!(unsafe { call.run(f) });
    let polled = checks.poll(&mut Context::from_waker(Waker::noop()));
    f.only_checks.set(false);
    match polled {
        Poll::Ready(result) => result,
        Poll::Pending => Ok(()),
    }
}
