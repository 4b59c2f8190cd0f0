//! Requests that are not of the protocol layer: a persistent send or receive, or an operation that polls.

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::objects::arguments::{Args, Checked, Mode};
use fastpath_protocol::RequestId;
use std::borrow::Cow;
use std::cell::{Cell, Ref, RefCell, RefMut};
use std::ptr::NonNull;
use std::rc::Rc;

/// When an operation is polled by calls that do not name its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// Never.
    Named,
    /// In any call that makes progress, when this request of the first worker is complete.
    Request(RequestId),
    /// In any call that makes progress.
    Always,
}

/// What a call of the program says to an operation by its request, or asks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// `MPI_Grequest_complete`.
    Complete,
    /// `MPI_Pready`: these partitions may leave, from the first to the last.
    Ready(i32, i32),
    /// `MPI_Parrived`: whether that partition is there.
    Arrived(i32),
}

/// An operation of this layer that makes its own progress (a nonblocking collective, a generalized
/// request). Polled by every wait and test that names it, and by others as [`Operation::watch`] says.
///
/// `P` is the process. It keeps the operations, so that this file cannot name it.
pub trait Operation<P> {
    /// Goes on; `Some` with the status when it has ended. Not called again after that, unless it is started again.
    fn poll(&mut self, p: &P) -> Option<Result<Status>>;

    /// When other calls poll it; asked when it begins and after each poll.
    fn watch(&self) -> Watch {
        Watch::Named
    }

    /// Whether it runs functions of the program, which the progress thread leaves to the program's threads.
    fn calls_back(&self) -> bool {
        false
    }

    /// The call that began it, for the notes of waits; empty where they do not say it.
    fn began(&self) -> &'static str {
        ""
    }

    /// How a report describes one that never ends.
    fn state(&self) -> Cow<'static, str> {
        "it is under way".into()
    }

    /// Whether every member of its communicator begins it too: one cannot leave the job before it has ended.
    fn is_collective(&self) -> bool {
        false
    }

    /// Whether messages of that context, as a match key has it, and of that tag are its own: those of a collective
    /// call.
    fn carries(&self, context: u64, tag: i32) -> bool {
        let _ = (context, tag);
        false
    }

    /// Whether it is known to be over before anybody asks for its result.
    fn is_over(&self) -> bool {
        false
    }

    /// The communicator that it needs until its request is freed.
    fn comm(&self) -> Option<usize> {
        None
    }

    /// Called by `MPI_Start`, of a persistent one; what [`Operation::poll`] would return.
    ///
    /// # Errors
    /// It has not begun.
    fn start(&mut self, p: &P) -> Result<Option<Result<Status>>> {
        let _ = p;
        Ok(None)
    }

    /// Called by `MPI_Cancel`.
    fn cancel(&mut self, p: &P) -> Result {
        let _ = p;
        Ok(())
    }

    /// A function of the program that `MPI_Cancel` calls instead. It may name the request.
    fn cancel_function(&self) -> Option<Box<dyn FnOnce() -> Result>> {
        None
    }

    /// Takes what a call says to it, or answers. It may be inactive.
    ///
    /// # Errors
    /// `MPI_ERR_REQUEST` where it is of another kind, and what is wrong with the notice.
    fn notify(&mut self, p: &P, notice: Notice) -> Result<bool> {
        let _ = p;
        let kind = match notice {
            Notice::Complete => "of a generalized request",
            Notice::Ready(..) => "of a partitioned send",
            Notice::Arrived(_) => "of a partitioned receive",
        };
        Err(not_of_kind(kind))
    }

    /// Whether the request stays known by its handle after it is freed, until the operation has ended.
    fn outlives_request(&self) -> bool {
        false
    }

    /// The places of the workers that carry it; a mask.
    fn places(&self, p: &P) -> u32 {
        let _ = p;
        1
    }

    /// Whether it consists only of other requests, each of which is reported if it is never completed.
    fn is_composed(&self) -> bool {
        false
    }

    /// Whether its request may be freed now.
    ///
    /// # Errors
    /// Why not.
    fn check_free(&self) -> Result {
        Ok(())
    }

    /// Called when the request is freed.
    fn free(&mut self, p: &P) -> Result {
        let _ = p;
        Ok(())
    }
}

#[cold]
pub(crate) fn not_of_kind(kind: &str) -> Error {
    Error::new(MPI_ERR_REQUEST, format!("the request is not that {kind}"))
}

/// A persistent send or receive.
pub(crate) struct Persistent {
    /// The call that made it.
    pub(crate) call: &'static str,
    /// Its arguments.
    pub(crate) args: Args,
    /// How a send completes; none of a receive.
    pub(crate) mode: Option<Mode>,
    /// Communicator and buffer; none for `MPI_PROC_NULL`. The handles in `args` may have been freed since.
    pub(crate) checked: Option<Rc<Checked>>,
    /// The started request, if one is active.
    pub(crate) active: Option<usize>,
}

/// The operation of a request of kind `Foreign`.
pub(crate) enum Extra<P> {
    /// A send or receive.
    Persistent(Persistent),
    /// An operation.
    Operation {
        /// None while it is polled.
        poll: Option<Box<dyn Operation<P>>>,
        /// Its outcome, once it has ended.
        result: Option<Result<Status>>,
        /// As it was asked last.
        watch: Watch,
        /// How often it was polled.
        polls: u32,
        /// Whether a persistent one is active.
        started: Option<bool>,
        /// Whether the program has freed the request, which [`Operation::outlives_request`].
        freed: bool,
        /// The call that made it with its place, where mistakes are looked for.
        made: String,
    },
}

/// A request, and what its operation keeps for the calls that name it; none once it is freed.
#[derive(Clone, Copy, Default)]
pub(crate) struct Marked {
    pub(crate) request: usize,
    pub(crate) marks: Option<NonNull<()>>,
}

impl Marked {
    /// None.
    pub(crate) const NONE: Marked = Marked { request: MPI_REQUEST_NULL, marks: None };
}

/// What requests of kind `Foreign` stand for.
pub struct Extras<P> {
    slots: RefCell<Vec<Option<Extra<P>>>>,
    free: RefCell<Vec<usize>>,
    pub(crate) active: Active,
    /// The partitioned send that was marked last: the next mark of the same one needs not find it again.
    pub(crate) marked: Cell<Marked>,
}

impl<P> Default for Extras<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> Extras<P> {
    /// No requests.
    pub const fn new() -> Self {
        Extras {
            slots: RefCell::new(Vec::new()),
            free: RefCell::new(Vec::new()),
            active: Active::new(),
            marked: Cell::new(Marked::NONE),
        }
    }

    /// To read: operations that are asked something meanwhile may do the same.
    pub(crate) fn slots(&self) -> Ref<'_, Vec<Option<Extra<P>>>> {
        self.slots.borrow()
    }

    /// To change: neither an operation nor anything of the program's runs meanwhile. An operation is taken out of its
    /// slot before it is polled.
    pub(crate) fn slots_mut(&self) -> RefMut<'_, Vec<Option<Extra<P>>>> {
        self.slots.borrow_mut()
    }

    /// Whether a collective call under way here may still send or take a message of that context, as a match key has
    /// it, and of that tag.
    pub(crate) fn carry(&self, context: u64, tag: i32) -> bool {
        self.slots().iter().flatten().any(|extra| match extra {
            Extra::Operation { poll, result: None, started, .. } => {
                // Nothing is known of one that is being polled.
                let carries = poll.as_ref().is_none_or(|operation| operation.carries(context, tag));
                *started != Some(false) && carries
            }
            _ => false,
        })
    }

    /// Keeps one; returns its index.
    pub(crate) fn insert(&self, extra: Extra<P>) -> usize {
        let mut slots = self.slots_mut();
        match self.free.borrow_mut().pop() {
            Some(index) => {
                slots[index] = Some(extra);
                index
            }
            None => {
                slots.push(Some(extra));
                slots.len() - 1
            }
        }
    }

    /// Takes one out.
    pub(crate) fn remove(&self, index: usize) -> Option<Extra<P>> {
        let extra = self.slots_mut().get_mut(index).and_then(Option::take);
        if extra.is_some() {
            self.free.borrow_mut().push(index);
        }
        extra
    }

    /// Keeps what the operation that is being polled waits for.
    pub(crate) fn note_awaited(&self, id: RequestId) {
        self.active.awaited.set(id);
    }

    /// What was kept last.
    pub(crate) fn awaited(&self) -> RequestId {
        self.active.awaited.get()
    }
}

/// The indices of the operations that wait for a request or want to be asked.
#[derive(Default)]
pub(crate) struct Active {
    pub(crate) indices: Cell<Vec<usize>>,
    /// The request that the operation which was polled last waits for.
    pub(crate) awaited: Cell<RequestId>,
    /// Whether one is being polled: a function of the program that it runs may come back.
    pub(crate) is_polling: Cell<bool>,
}

impl Active {
    /// None.
    pub(crate) const fn new() -> Self {
        Active {
            indices: Cell::new(Vec::new()),
            awaited: Cell::new(0),
            is_polling: Cell::new(false),
        }
    }

    /// The one at a place of the list.
    pub(crate) fn at(&self, place: usize) -> Option<usize> {
        let indices = self.indices.take();
        let index = indices.get(place).copied();
        self.indices.set(indices);
        index
    }
}
