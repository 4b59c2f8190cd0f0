//! Adapter port of one interface: protection domain, port, and device events.

use crate::verbs::inline::Source;
use crate::verbs::{
    Access, Buffer, CompletionChannel, DeviceContext, LocalPort, ProtectionDomain, VerbsError,
    Watcher,
};
use std::sync::Arc;
use std::time::Duration;

/// Longest sleep. It is bounded because the loss of a device may produce no completion.
pub(super) const LONG_NAP: Duration = Duration::from_secs(1);
/// Longest sleep if the adapter cannot wake this rank.
pub(super) const SHORT_NAP: Duration = Duration::from_millis(1);
/// Number of idle progress calls between two checks for failed unsignaled sends.
pub(super) const QUIET: u32 = 64;
/// Number of checks for failed sends between two checks of the device, each of which is a system call.
pub(super) const POLLS: u32 = 64;

pub(super) struct AdapterPort {
    pub memory: Arc<ProtectionDomain>,
    pub local: LocalPort,
    inline: (u32, Source),
    pub clock: fn() -> u64,
    pub last_error: Option<String>,
    pub refused: u64,
    changes: u32,
    quiet: u32,
}

impl AdapterPort {
    pub fn new(
        context: &Arc<DeviceContext>, port: Option<u8>, inline: (u32, Source),
    ) -> Result<Self, VerbsError> {
        Ok(AdapterPort {
            inline,
            local: LocalPort::choose(context, port)?,
            memory: ProtectionDomain::new(context)?,
            clock: fastpath_base::clock::now_ns,
            last_error: None,
            refused: 0,
            changes: context.look().changes,
            quiet: 0,
        })
    }

    pub fn name(&self) -> (String, u8) {
        let name = self.memory.context().name().to_owned();
        (name, self.local.number())
    }

    pub fn describe(&self) -> String {
        let ((name, number), mtu, (bytes, source)) =
            (self.name(), self.local.mtu_bytes(), self.inline);
        format!(
            "{name} port {number}, MTU {mtu}, {bytes} bytes of inline data requested ({source})"
        )
    }

    pub fn is_active(&self) -> bool {
        self.local.is_active(self.memory.context())
    }

    #[inline]
    pub fn now(&self) -> u64 {
        (self.clock)()
    }

    pub fn buffer(&self, len: usize, access: Access) -> Result<Buffer, VerbsError> {
        Buffer::new(&self.memory, len, access)
    }

    pub fn more_buffer(&mut self, len: usize, access: Access) -> Result<Buffer, VerbsError> {
        self.buffer(len, access).inspect_err(|_| self.refused += 1)
    }

    /// Stores the error text of a failed operation in `last_error`; returns the value of a successful one.
    pub fn note<T>(&mut self, outcome: Result<T, VerbsError>) -> Option<T> {
        let kept = |error: VerbsError| self.last_error = Some(error.to_string());
        outcome.map_err(kept).ok()
    }

    /// Records whether progress found an event; returns whether to check for failures now.
    #[inline]
    pub fn is_quiet(&mut self, found: bool) -> bool {
        self.quiet = if found { 0 } else { self.quiet + 1 };
        !found && self.quiet.is_multiple_of(QUIET)
    }

    /// Whether to check the device for events now. Call this only after [`AdapterPort::is_quiet`] has returned true.
    pub fn is_long_quiet(&mut self) -> bool {
        let long = self.quiet >= QUIET * POLLS;
        if long {
            self.quiet = 0;
        }
        long
    }

    /// Whether device or port have changed since the last call. Makes a system call. Fails if the device is gone.
    pub fn look_for_change(&mut self) -> Result<bool, String> {
        self.memory.context().look_for_change(&mut self.changes)
    }
}

pub(super) struct Waker {
    channel: Arc<CompletionChannel>,
    watcher: Option<Watcher>,
}

impl Waker {
    pub fn new(channel: Arc<CompletionChannel>) -> Self {
        Waker { channel, watcher: None }
    }

    /// Starts a thread that calls `wake` on each event; returns false if that fails. Later calls keep the first `wake`.
    pub fn start(&mut self, wake: impl Fn() + Send + 'static) -> bool {
        if self.watcher.is_none() {
            self.watcher = Watcher::start(self.channel.clone(), wake).ok();
        }
        self.watcher.is_some()
    }
}
