//! Socket of a rank, before and after opening.

use super::ports::Listener;
use std::os::fd::RawFd;
use std::sync::OnceLock;

/// Listening socket of a rank.
#[derive(Debug, Default)]
pub(crate) struct NetworkPlace {
    /// Descriptors of listening sockets that another process opened for the rank.
    pub inherited: Vec<RawFd>,
    /// The socket, once the rank listens.
    pub listener: OnceLock<Listener>,
}

impl NetworkPlace {
    pub fn inheriting(inherited: Vec<RawFd>) -> Self {
        NetworkPlace { inherited, listener: OnceLock::new() }
    }
}
