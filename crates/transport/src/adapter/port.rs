//! A port of an adapter as one interface uses it: memory that the adapter may reach, and what happens to the device.

use crate::verbs::inline::Source;
use crate::verbs::{
    Access, Buffer, CompletionChannel, DeviceContext, LocalPort, ProtectionDomain, VerbsError,
    Watcher,
};
use std::sync::Arc;
use std::time::Duration;

/// How long a rank sleeps at a time: the loss of the device may make no completion.
pub(super) const LONG_NAP: Duration = Duration::from_secs(1);
/// The same where the adapter cannot wake it.
pub(super) const SHORT_NAP: Duration = Duration::from_millis(1);
/// Progress that finds nothing between two looks for failures of silent sends.
pub(super) const QUIET: u32 = 64;
/// Such looks between two questions whether the device is still there, which cost a system call.
pub(super) const POLLS: u32 = 64;

/// A device with the port that is used.
pub(super) struct Port {
    pub memory: Arc<ProtectionDomain>,
    pub local: LocalPort,
    /// Bytes of inline data that queue pairs ask for, and who said so.
    inline: (u32, Source),
    /// The time in nanoseconds.
    pub clock: fn() -> u64,
    /// Why the last failed connection did, or what was refused last.
    pub last_error: Option<String>,
    /// Times that memory for more buffers was refused: it goes on with those that there are.
    pub refused: u64,
    /// Changes of the device that have been looked at.
    changes: u32,
    /// Progress that found nothing, in a row.
    quiet: u32,
}

impl Port {
    /// The device's port `port`, or else its first active one.
    ///
    /// # Errors
    /// No such port, none active, or the device refuses.
    pub fn new(
        context: &Arc<DeviceContext>, port: Option<u8>, inline: (u32, Source),
    ) -> Result<Self, VerbsError> {
        Ok(Port {
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

    /// Name of the device, and number of the port.
    pub fn name(&self) -> (String, u8) {
        let name = self.memory.context().name().to_owned();
        (name, self.local.number())
    }

    /// Device, port, packet size, and how much inline data is asked for, for people.
    pub fn describe(&self) -> String {
        let ((name, number), mtu, (bytes, source)) =
            (self.name(), self.local.mtu_bytes(), self.inline);
        format!(
            "{name} port {number}, MTU {mtu}, {bytes} bytes of inline data asked for ({source})"
        )
    }

    /// Whether the port can be used now.
    pub fn is_active(&self) -> bool {
        self.local.is_active(self.memory.context())
    }

    /// The time in nanoseconds.
    #[inline]
    pub fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Pages of the process's own, registered.
    pub fn buffer(&self, len: usize, access: Access) -> Result<Buffer, VerbsError> {
        Buffer::new(&self.memory, len, access)
    }

    /// The same for more buffers than are there from the start: where it is refused, that is counted.
    pub fn more_buffer(&mut self, len: usize, access: Access) -> Result<Buffer, VerbsError> {
        self.buffer(len, access).inspect_err(|_| self.refused += 1)
    }

    /// Keeps why something did not go, for people; what went is passed on.
    pub fn note<T>(&mut self, outcome: Result<T, VerbsError>) -> Option<T> {
        let kept = |error: VerbsError| self.last_error = Some(error.to_string());
        outcome.map_err(kept).ok()
    }

    /// Takes note that progress has found something, or nothing; says whether it is time to look for failures.
    #[inline]
    pub fn is_quiet(&mut self, found: bool) -> bool {
        self.quiet = if found { 0 } else { self.quiet + 1 };
        !found && self.quiet.is_multiple_of(QUIET)
    }

    /// Whether it is time to ask for the device too; asked when it is time to look for failures.
    pub fn is_long_quiet(&mut self) -> bool {
        let long = self.quiet >= QUIET * POLLS;
        if long {
            self.quiet = 0;
        }
        long
    }

    /// Whether something has happened to the device or its port since this was last asked, by a system call.
    ///
    /// # Errors
    /// The device is gone, for people.
    pub fn look_for_change(&mut self) -> Result<bool, String> {
        self.memory.context().look_for_change(&mut self.changes)
    }
}

/// What wakes a sleeping rank where an adapter has something for it.
pub(super) struct Waker {
    channel: Arc<CompletionChannel>,
    /// There once somebody has asked to be woken.
    watcher: Option<Watcher>,
}

impl Waker {
    /// By the events of a channel.
    pub fn new(channel: Arc<CompletionChannel>) -> Self {
        Waker { channel, watcher: None }
    }

    /// From now on an event calls `wake`, that of the first call of this, from another thread; false where that cannot
    /// be.
    pub fn start(&mut self, wake: impl Fn() + Send + 'static) -> bool {
        if self.watcher.is_none() {
            self.watcher = Watcher::start(self.channel.clone(), wake).ok();
        }
        self.watcher.is_some()
    }
}
