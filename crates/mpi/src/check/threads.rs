//! Detection of calls that the thread level forbids: by a thread other than the main one, or by two threads at a time.
//! Below `MPI_THREAD_MULTIPLE` there is no lock. This code must therefore not access process state that a call uses.

use crate::check::caller::CallFrames;
use crate::common::consts::*;
use crate::common::lock::thread_token;
use fastpath_base::tell;
use fastpath_base::topology;
use std::sync::{Mutex, PoisonError};

struct ActiveThread {
    /// Token of the thread inside MPI; 0 if there is none.
    thread: usize,
    /// Name of the thread in reports.
    name: String,
    call: &'static str,
    /// Whether any thread may make this call at any time.
    anytime: bool,
    depth: u32,
    told: bool,
}

static INSIDE: Mutex<ActiveThread> = Mutex::new(ActiveThread {
    thread: 0,
    name: String::new(),
    call: "",
    anytime: false,
    depth: 0,
    told: false,
});

pub(crate) struct ThreadState<R> {
    /// Whether the thread initialised MPI.
    pub is_main: bool,
    /// Thread level granted.
    pub level: i32,
    /// Function that returns the rank in the job.
    pub rank: R,
}

/// Records that the calling thread enters `call`. If the level forbids the call, prints a report, but only once.
#[cold]
pub(crate) fn enter(known: ThreadState<impl FnOnce() -> usize>, call: &'static str, anytime: bool) {
    // Any thread may also make these queries at any time (MPI 5.0, section 11.6).
    let anytime = anytime || matches!(call, "MPI_Query_thread" | "MPI_Is_thread_main");
    let me = thread_token();
    let mut inside = INSIDE.lock().unwrap_or_else(PoisonError::into_inner);
    if inside.thread == me {
        inside.depth += 1;
        return;
    }
    let is_free = inside.thread == 0;
    let name = match known.is_main {
        true => "thread \"main\"".to_owned(),
        false => format!("thread {}", topology::thread_number()),
    };
    let other = (!is_free && !inside.anytime).then(|| (inside.name.as_str(), inside.call));
    if !anytime
        && !inside.told
        && let Some(what) = describe(known.level, known.is_main, (&name, call), other)
    {
        inside.told = true;
        let rank = (known.rank)();
        tell!("fastpath: rank {rank}: {what}");
    }
    if is_free {
        inside.thread = me;
        (inside.name, inside.call) = (name, call);
        (inside.anytime, inside.depth) = (anytime, 1);
    }
}

#[cold]
pub(crate) fn leave() {
    let mut inside = INSIDE.lock().unwrap_or_else(PoisonError::into_inner);
    if inside.thread == thread_token() {
        inside.depth -= 1;
        if inside.depth == 0 {
            inside.thread = 0;
            inside.name = String::new();
        }
    }
}

/// Describes the error of making `call` (thread and name) while `other` is in MPI; `None` if the level allows the call.
fn describe(
    level: i32, is_main: bool, call: (&str, &str), other: Option<(&str, &str)>,
) -> Option<String> {
    let (name, call) = call;
    let place =
        CallFrames::find(None).map_or(String::new(), |call| format!(" at {}", call.place()));
    if level <= MPI_THREAD_FUNNELED && !is_main {
        let level = match level {
            MPI_THREAD_FUNNELED => "MPI_THREAD_FUNNELED",
            _ => "MPI_THREAD_SINGLE (the level of MPI_Init)",
        };
        let main = match other {
            Some((name, call)) => format!("{name} is in {call} at that time"),
            None => "thread \"main\" is outside of MPI at that time".to_owned(),
        };
        return Some(format!(
            "{name} calls {call}{place}, but at {level} only the thread that initialised MPI may \
             make calls; {main}. Request MPI_THREAD_SERIALIZED from MPI_Init_thread if the threads \
             take turns, otherwise MPI_THREAD_MULTIPLE"
        ));
    }
    let (other, inside) = other?;
    let level = match level {
        MPI_THREAD_SERIALIZED => "MPI_THREAD_SERIALIZED",
        _ => "MPI_THREAD_FUNNELED",
    };
    Some(format!(
        "{name} calls {call}{place} while {other} is in {inside}, but at {level} only one thread \
         at a time may be inside MPI. Request MPI_THREAD_MULTIPLE from MPI_Init_thread, or let the \
         threads take turns"
    ))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn call__is_told_of_where_the_level_forbids_it() {
        let (own, other) = (("thread 7", "MPI_Send"), Some(("thread \"main\"", "MPI_Recv")));
        let told = |level, is_main, other| describe(level, is_main, own, other);
        for level in [MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED] {
            assert_eq!(told(level, true, None), None);
            let text = told(level, false, None).unwrap();
            assert!(text.contains("thread 7 calls MPI_Send"), "{text}");
            assert!(text.contains("\"main\" is outside of MPI"), "{text}");
            let text = told(level, false, other).unwrap();
            assert!(text.contains("\"main\" is in MPI_Recv"), "{text}");
            assert!(told(level, true, other).is_some());
        }
        assert_eq!(told(MPI_THREAD_SERIALIZED, false, None), None);
        let text = told(MPI_THREAD_SERIALIZED, false, other).unwrap();
        assert!(text.contains("while thread \"main\" is in MPI_Recv"), "{text}");
    }
}
