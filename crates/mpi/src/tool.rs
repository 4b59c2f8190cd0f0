//! The tool interface (MPI 5.0, chapter 15): initialisation, handles, categories, and the objects of its modules:
//!
//! | module | content |
//! |---|---|
//! | [`cvar`] | control variables: the rows of the configuration's table |
//! | [`pvar`] | performance variables: the counters of the worker |
//! | [`event`] | events: the points of traces |
//!
//! All calls may be made before `MPI_Init` and after `MPI_Finalize`, by several threads. A separate lock guards the
//! handles, and is not held while a callback of a tool runs.

pub mod cvar;
pub mod event;
pub(crate) mod profile;
pub mod pvar;
pub mod traced;

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// First handle of each kind. Smaller numbers are constants of the ABI.
const FIRST_HANDLE: usize = 16;

/// Table of objects by handle.
#[derive(Debug)]
pub(crate) struct Slots<T>(Vec<Option<T>>);

impl<T> Slots<T> {
    const fn new() -> Self {
        Slots(Vec::new())
    }

    fn insert(&mut self, value: T) -> usize {
        let free = self.0.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.0.push(None);
            self.0.len() - 1
        });
        self.0[index] = Some(value);
        index + FIRST_HANDLE
    }

    fn slot(&mut self, handle: usize) -> Option<&mut Option<T>> {
        self.0.get_mut(handle.checked_sub(FIRST_HANDLE)?)
    }

    fn get(&mut self, handle: usize) -> Option<&mut T> {
        self.slot(handle)?.as_mut()
    }

    fn remove(&mut self, handle: usize) -> Option<T> {
        self.slot(handle)?.take()
    }
}

#[derive(Debug)]
struct Tool {
    /// Number of calls of `MPI_T_init_thread` without a matching `MPI_T_finalize`.
    inits: u32,
    cvars: Slots<usize>,
    sessions: Slots<()>,
    pvars: Slots<pvar::Handle>,
}

static TOOL: Mutex<Tool> =
    Mutex::new(Tool { inits: 0, cvars: Slots::new(), sessions: Slots::new(), pvars: Slots::new() });

fn lock() -> MutexGuard<'static, Tool> {
    TOOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks the handles. Fails unless the interface is initialised.
fn enter() -> Result<MutexGuard<'static, Tool>> {
    let tool = lock();
    match tool.inits {
        0 => Err(Error::new(MPI_T_ERR_NOT_INITIALIZED, "call MPI_T_init_thread first")),
        _ => Ok(tool),
    }
}

/// Checks that the interface is initialised. Errors: `MPI_T_ERR_NOT_INITIALIZED`.
pub fn check() -> Result {
    enter().map(drop)
}

/// `MPI_T_init_thread`. Returns the provided thread level, which is `required`. Errors: `MPI_T_ERR_INVALID` if
/// `required` is not a thread level.
pub fn init(required: i32) -> Result<i32> {
    if !(MPI_THREAD_SINGLE..=MPI_THREAD_MULTIPLE).contains(&required) {
        return Err(Error::new(MPI_T_ERR_INVALID, "the thread level is unknown"));
    }
    lock().inits += 1;
    Ok(required)
}

/// `MPI_T_finalize`. The last call frees all remaining handles. Errors: `MPI_T_ERR_NOT_INITIALIZED`.
pub fn finalize() -> Result {
    let mut tool = enter()?;
    tool.inits -= 1;
    if tool.inits == 0 {
        (tool.cvars, tool.sessions, tool.pvars) = (Slots::new(), Slots::new(), Slots::new());
        drop(tool);
        event::forget_all();
    }
    Ok(())
}

/// A group of variables or events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Category {
    /// Name of the category.
    pub name: &'static str,
    /// Description of its content.
    pub meaning: &'static str,
    /// Numbers of control variables, of performance variables and of events in the category.
    pub counts: [usize; 3],
}

/// Returns all categories. Categories do not contain others and never change.
pub fn categories() -> [Category; 3] {
    let category = |name, meaning, counts| Category { name, meaning, counts };
    [
        category(
            "configuration",
            "environment variables of Fastpath (`fastpath info` lists them)",
            [cvar::count(), 0, 0],
        ),
        category(
            "counters",
            "messages, waits and connections of this process",
            [0, pvar::VARIABLES.len(), 0],
        ),
        category("trace", "events that FASTPATH_TRACE records", [0, 0, event::count()]),
    ]
}

/// Returns the category of a number. Errors: `MPI_T_ERR_INVALID_INDEX`.
pub fn find_category(index: i32) -> Result<Category> {
    check()?;
    let found = usize::try_from(index).ok();
    let found = found.and_then(|index| categories().get(index).copied());
    found.ok_or_else(|| no_index("category", index))
}

fn no_index(what: &str, index: i32) -> Error {
    Error::new(MPI_T_ERR_INVALID_INDEX, format!("there is no {what} {index}"))
}

fn no_name(what: &str, name: &str) -> Error {
    Error::new(MPI_T_ERR_INVALID_NAME, format!("there is no {what} {name}"))
}

/// Returns the number of the category `name`. Errors: `MPI_T_ERR_INVALID_NAME`.
pub fn category_index(name: &str) -> Result<usize> {
    check()?;
    let found = categories().iter().position(|c| c.name == name);
    found.ok_or_else(|| no_name("category", name))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn slots__give_each_object_a_handle_of_its_own() {
        let mut slots = Slots::new();
        let (a, b) = (slots.insert('a'), slots.insert('b'));
        assert!(a != b && a >= FIRST_HANDLE);
        assert_eq!(slots.remove(a), Some('a'));
        assert_eq!((slots.remove(a), slots.get(a)), (None, None));
        assert_eq!(slots.insert('c'), a);
        assert_eq!(slots.get(b), Some(&mut 'b'));
        assert_eq!(slots.get(0), None);
        assert_eq!(slots.get(usize::MAX), None);
    }
}
