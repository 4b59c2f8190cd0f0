//! Constants, errors, statuses, handles and the lock. All other folders use them.

pub mod consts;
pub mod debugger;
pub mod environment;
pub mod error;
pub mod lock;
pub(crate) mod spare_blocks;
pub mod status;
pub mod table;
