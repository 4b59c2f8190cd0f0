//! RDMA adapters by the verbs interface of rdma-core: common code of the transports `rc` and `ud`.
//!
//! The library is loaded at run time ([`Library::load`]); without the library, or without a device, everything else
//! works. This module has devices and ports, memory, queues, and posting, and does not know messages or ranks. Each
//! object is destroyed when it is dropped, and holds references to the objects it depends on.
//!
//! | file | holds |
//! |---|---|
//! | `abi` | structures and constants of the C header, compared with it by a test |
//! | `library`, `call`, `error` | loading; calls as results; errors and remedies |
//! | `device`, `choice`, `path` | devices, the choice of one, ports, GIDs, paths between two ports |
//! | `memory`, `window`, `queue`, `qp` | domains, registrations and windows; completion and receive queues; queue pairs |
//! | `post`, `list`, `inline` | sends, one or several by a call; completions; inline data |
//! | `port_counter` | the kernel's count of exhausted receive buffers |
//! | `identity`, `echo` | identity of a device; ping-pong of two queue pairs of one device, for measurements |
//!
//! **ANY THREAD.** The library may be called from any thread and locks its objects itself (ibv_open_device(3) and
//! related pages). Other fields of a value do not change after its creation, or are atomic.
//!
//! **ALIVE.** The library's object lives as long as the value that owns it. The fields read here do not change.

#[allow(missing_docs)] // named like the header
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
pub use echo::{Echo, EchoError, EchoPort};
pub use error::{VerbsCall, VerbsError};
pub use identity::DeviceIdentity;
pub use inline::InlineChoice;
pub use library::Library;
pub use list::SendList;
pub use memory::{Access, Buffer, MemoryRegion, ProtectionDomain, fewer};
pub use path::{LocalPort, Path, PortAddress};
pub use port_counter::PortCounter;
pub use post::{Failure, PostError, PostedSend, SendFlags, SendOperation, SendRequest};
pub use qp::{AddressHandle, PairSettings, QueuePair, RemoteQp, RetryConfig, Service};
pub use queue::{CompletionChannel, CompletionQueue, RecvEntry, SharedReceiveQueue};
pub use watcher::Watcher;
pub use window::MemoryWindow;

/// Whether tests on a device run at full length. They are short by default: the tested device is software in a virtual
/// machine on an emulated processor.
#[cfg(test)]
pub(crate) fn is_long() -> bool {
    std::env::var_os("FASTPATH_TEST_LONG").is_some()
}

/// Device of `FASTPATH_TEST_DEVICE`, or else the fake one, and whether the device is real.
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
