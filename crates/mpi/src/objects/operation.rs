//! Requests outside of the protocol layer: persistent sends and receives, and operations that are polled.

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::objects::arguments::{Args, CheckedArguments, Mode};
use fastpath_protocol::RequestId;
use std::borrow::Cow;
use std::cell::{Cell, Ref, RefCell, RefMut};
use std::ptr::NonNull;
use std::rc::Rc;

/// Value of [`Extras::awaited`] for an operation that waits for memory that other ranks write, not for a request.
pub(crate) const AWAITS_MEMORY: RequestId = RequestId::MAX;

/// Condition under which calls also poll an operation if they do not name its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollCondition {
    /// Never: only calls that name the request poll the operation.
    Named,
    /// In any call that makes progress, when this request is complete.
    Request(RequestId),
    /// In any call that makes progress.
    Always,
}

/// Notice to an operation, or query of it, by a call that names its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// `MPI_Grequest_complete`.
    Complete,
    /// `MPI_Pready`: the partitions from the first number to the last are ready.
    Ready(i32, i32),
    /// `MPI_Parrived`: asks whether the partition has arrived.
    Arrived(i32),
}

/// Operation that the MPI layer runs itself, such as a nonblocking collective or a generalized request. Every wait and
/// test that names its request polls it. Other calls poll it as [`Operation::watch`] requires.
///
/// `P` is the process. `P` is a parameter because the process owns the operations: this file belongs to an earlier
/// folder, and cannot name the type of the process.
pub trait Operation<P> {
    /// Makes progress. Returns the status when the operation has ended, and is then not called again before a restart.
    fn poll(&mut self, p: &P) -> Option<Result<Status>>;

    /// Condition under which other calls poll the operation. Read when the operation begins and after each poll.
    fn watch(&self) -> PollCondition {
        PollCondition::Named
    }

    /// Returns whether the operation runs functions of the program, so that the progress thread must not poll it.
    fn calls_back(&self) -> bool {
        false
    }

    /// MPI call that began the operation, named in reports of waits; empty if reports omit it.
    fn began(&self) -> &'static str {
        ""
    }

    /// Text about the progress of the operation, for a report that it never ends.
    fn state(&self) -> Cow<'static, str> {
        "the operation is under way".into()
    }

    /// Returns whether every member of the communicator begins this operation too, and stays in the job until it ends.
    fn is_collective(&self) -> bool {
        false
    }

    /// Number of starts of a persistent operation; 1 if the operation is not persistent.
    fn starts(&self) -> u64 {
        1
    }

    /// Returns whether a message of `tag` and `context`, as in a match key, belongs to this collective call.
    fn carries(&self, context: u64, tag: i32) -> bool {
        let _ = (context, tag);
        false
    }

    /// Returns whether the operation is known to have ended before a call reads the result.
    fn is_over(&self) -> bool {
        false
    }

    /// Returns the communicator that the operation needs until its request is freed.
    fn comm(&self) -> Option<usize> {
        None
    }

    /// Starts a persistent operation, for `MPI_Start`. Returns the result of a first poll, as [`Operation::poll`] does.
    /// After an error, the operation has not begun.
    fn start(&mut self, p: &P) -> Result<Option<Result<Status>>> {
        let _ = p;
        Ok(None)
    }

    /// Cancels the operation, for `MPI_Cancel`.
    fn cancel(&mut self, p: &P) -> Result {
        let _ = p;
        Ok(())
    }

    /// Returns the program's function for `MPI_Cancel`, which is called in place of [`Operation::cancel`]. The function
    /// may make MPI calls that name the request.
    fn cancel_function(&self) -> Option<Box<dyn FnOnce() -> Result>> {
        None
    }

    /// Handles a notification or answers a query. The operation may be inactive. Errors: `MPI_ERR_REQUEST` if the
    /// operation is of another kind; an error in the notice.
    fn notify(&mut self, p: &P, notice: Notice) -> Result<bool> {
        let _ = p;
        let kind = match notice {
            Notice::Complete => "of a generalized request",
            Notice::Ready(..) => "of a partitioned send",
            Notice::Arrived(_) => "of a partitioned receive",
        };
        Err(not_of_kind(kind))
    }

    /// Returns whether the handle of a freed request stays known until the operation has ended.
    fn outlives_request(&self) -> bool {
        false
    }

    /// Returns whether the operation consists only of other requests, each of which is reported if never completed.
    fn is_composed(&self) -> bool {
        false
    }

    /// Checks that the request may be freed now. Errors: the reason why it may not be freed.
    fn check_free(&self) -> Result {
        Ok(())
    }

    /// Frees the request.
    fn free(&mut self, p: &P) -> Result {
        let _ = p;
        Ok(())
    }
}

#[cold]
pub(crate) fn not_of_kind(kind: &str) -> Error {
    let text = format!("the request is not the request {kind}");
    Error::new(MPI_ERR_REQUEST, text).with_advice(Some(format!("pass the request {kind}")))
}

pub(crate) struct Persistent {
    pub(crate) call: &'static str,
    pub(crate) args: Args,
    /// Send mode; `None` for a receive.
    pub(crate) mode: Option<Mode>,
    /// Communicator and buffer; `None` for `MPI_PROC_NULL`. The handles in `args` may have been freed since.
    pub(crate) checked: Option<Rc<CheckedArguments>>,
    pub(crate) active: Option<usize>,
}

/// Operation of a request of kind `Foreign`.
pub(crate) enum Extra<P> {
    Persistent(Persistent),
    Operation {
        /// The operation; `None` while it is polled.
        poll: Option<Box<dyn Operation<P>>>,
        result: Option<Result<Status>>,
        /// Last value of [`Operation::watch`].
        watch: PollCondition,
        polls: u32,
        /// Whether the operation is active, if it is persistent; otherwise `None`.
        started: Option<bool>,
        /// Whether the program has freed the request of an operation that outlives it
        /// ([`Operation::outlives_request`]).
        freed: bool,
        /// MPI call that made the request, with its source location, if checks are on.
        made: String,
    },
}

/// Request of a partitioned send, and the marks of its partitions; `None` once the request is freed.
#[derive(Clone, Copy, Default)]
pub(crate) struct MarkedRequest {
    pub(crate) request: usize,
    pub(crate) marks: Option<NonNull<()>>,
}

impl MarkedRequest {
    pub(crate) const NONE: MarkedRequest = MarkedRequest { request: MPI_REQUEST_NULL, marks: None };
}

/// Operations of requests of kind `Foreign`.
pub struct Extras<P> {
    slots: RefCell<Vec<Option<Extra<P>>>>,
    free: RefCell<Vec<usize>>,
    pub(crate) active: Active,
    /// Partitioned send whose partitions were marked last, so that the next call that marks one need not search for it.
    pub(crate) marked: Cell<MarkedRequest>,
}

impl<P> Default for Extras<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> Extras<P> {
    /// Makes an empty set.
    pub const fn new() -> Self {
        Extras {
            slots: RefCell::new(Vec::new()),
            free: RefCell::new(Vec::new()),
            active: Active::new(),
            marked: Cell::new(MarkedRequest::NONE),
        }
    }

    /// Borrows the slots for reading. Operations that are called during the borrow may borrow the slots too.
    pub(crate) fn slots(&self) -> Ref<'_, Vec<Option<Extra<P>>>> {
        self.slots.borrow()
    }

    /// Borrows the slots for a change. No operation and no function of the program runs during the borrow, because an
    /// operation is removed from its slot before it is polled.
    pub(crate) fn slots_mut(&self) -> RefMut<'_, Vec<Option<Extra<P>>>> {
        self.slots.borrow_mut()
    }

    /// Returns whether an outstanding collective call may still use a message of this match-key `context` and `tag`.
    pub(crate) fn carry(&self, context: u64, tag: i32) -> bool {
        self.slots().iter().flatten().any(|extra| match extra {
            Extra::Operation { poll, result: None, started, .. } => {
                // An operation that is being polled is out of its slot, and counts as a match.
                let carries = poll.as_ref().is_none_or(|operation| operation.carries(context, tag));
                *started != Some(false) && carries
            }
            _ => false,
        })
    }

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

    pub(crate) fn remove(&self, index: usize) -> Option<Extra<P>> {
        let extra = self.slots_mut().get_mut(index).and_then(Option::take);
        if extra.is_some() {
            self.free.borrow_mut().push(index);
        }
        extra
    }

    /// Drops all operations of an exiting process.
    pub(crate) fn drop_all(&self) {
        // Operations are dropped outside the borrow.
        let slots = self.slots.take();
        drop(slots);
        self.free.take();
        self.active.indices.take();
    }

    /// Stores the request that the polled operation waits for.
    pub(crate) fn note_awaited(&self, id: RequestId) {
        self.active.awaited.set(id);
    }

    pub(crate) fn awaited(&self) -> RequestId {
        self.active.awaited.get()
    }
}

/// Indices of the operations that wait for a request or need polls.
#[derive(Default)]
pub(crate) struct Active {
    pub(crate) indices: Cell<Vec<usize>>,
    /// Request that the last polled operation waits for.
    pub(crate) awaited: Cell<RequestId>,
    /// Whether an operation is being polled. The operation may run a function of the program, which may call MPI again.
    pub(crate) is_polling: Cell<bool>,
}

impl Active {
    pub(crate) const fn new() -> Self {
        Active {
            indices: Cell::new(Vec::new()),
            awaited: Cell::new(0),
            is_polling: Cell::new(false),
        }
    }

    pub(crate) fn at(&self, place: usize) -> Option<usize> {
        let indices = self.indices.take();
        let index = indices.get(place).copied();
        self.indices.set(indices);
        index
    }
}
