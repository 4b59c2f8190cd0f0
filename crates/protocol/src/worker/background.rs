/// State of the progress thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Background {
    /// Whether the process has a progress thread.
    pub runs: bool,
    pub(crate) attending: u32,
    /// Whether the progress thread ignored a signal because a program thread was inside MPI.
    pub(crate) missed: bool,
    /// Whether the progress thread has a processor to itself, on which it stays awake for a while.
    pub has_processor: bool,
    /// Whether the thread makes progress now.
    pub serves: bool,
    /// Number of times that the thread took the worker.
    pub turns: u64,
    /// Number of turns that found work.
    pub useful: u64,
}
