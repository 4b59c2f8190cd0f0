//! RDMA adapters by the standard verbs interface of rdma-core: what the transports `rc` and `ud` share.
//!
//! The library is loaded at run time ([`Library::load`]); without it, and without a device, everything
//! else runs. Here are devices and ports, memory, queues, and posting; nothing here knows of messages
//! or peers' ranks. Whatever is made gives itself back when dropped, and holds what it was made of.
//!
//! | file | holds |
//! |---|---|
//! | `abi` | structures and constants of the C header, compared with it by a test |
//! | `library`, `call`, `error` | loading; calls as results; what went wrong and what to do |
//! | `device`, `choice`, `path` | devices, which of them is used, ports, GIDs, the way between two ports |
//! | `memory`, `window`, `queue`, `qp` | domains, registrations and windows; completion and receive queues; queue pairs |
//! | `post`, `list`, `inline` | posting sends, one or several by a call, completions; what goes inline |
//! | `port_counter` | what the kernel counts of receive buffers that ran out |
//! | `identity`, `echo` | who a device is; two queue pairs of one device that answer each other, for measuring |
//!
//! **ANY THREAD.** The library may be called from any thread, and guards its objects itself (ibv_open_device(3) and its
//! fellows). What a value keeps beside the library's object is not changed once it is made, or is atomic.
//!
//! **ALIVE.** The library's object is destroyed only when the value that owns it is dropped, and until then the fields
//! read here stay as its making left them.

#[allow(missing_docs)] // the header's names
pub mod abi;
mod call;
mod choice;
pub mod device;
pub mod echo;
pub mod error;
#[cfg(test)]
pub(crate) mod fake;
pub mod identity;
pub mod inline;
#[cfg(test)]
mod layout_tests;
pub mod library;
pub mod list;
pub mod memory;
pub mod path;
pub mod port_counter;
pub mod post;
pub mod qp;
pub mod queue;
#[cfg(test)]
mod semantics_tests;
pub mod watcher;
pub mod window;

pub use abi::{Sge, Wc};
#[cfg(test)]
pub(crate) use call::fault;
pub use choice::{open_device, split_port};
pub use device::{DeviceContext, list_devices};
pub use echo::{Echo, EchoError, Loop};
pub use error::{VerbsCall, VerbsError};
pub use identity::Identity;
pub use inline::InlineChoice;
pub use library::Library;
pub use list::SendList;
pub use memory::{Access, Buffer, MemoryRegion, ProtectionDomain, fewer};
pub use path::{LocalPort, Path, PortAddress};
pub use port_counter::PortCounter;
pub use post::{Failure, Operation, PostError, Posted, SendFlags, SendRequest};
pub use qp::{AddressHandle, PairSettings, Peer, QueuePair, RetryConfig, Service};
pub use queue::{CompletionChannel, CompletionQueue, RecvEntry, SharedReceiveQueue};
pub use watcher::Watcher;
pub use window::MemoryWindow;

/// Whether the tests on a real adapter do as much as they can: it is the kernel's work, and in a virtual machine that
/// of an emulated processor.
#[cfg(test)]
pub(crate) fn is_long() -> bool {
    std::env::var_os("FASTPATH_TEST_LONG").is_some()
}

/// The device of a test: the one that `FASTPATH_TEST_DEVICE` names, or else the fake one. Says whether it is real.
#[cfg(test)]
pub(crate) fn test_device() -> (std::sync::Arc<DeviceContext>, bool) {
    match std::env::var("FASTPATH_TEST_DEVICE") {
        Ok(name) => {
            let library = Library::load().expect("FASTPATH_TEST_DEVICE is set");
            let context = DeviceContext::open(library, &name);
            (context.unwrap_or_else(|error| panic!("FASTPATH_TEST_DEVICE: {error}")), true)
        }
        Err(_) => {
            fake::set_conditions(fake::Conditions::default());
            (fake::open(), false)
        }
    }
}
