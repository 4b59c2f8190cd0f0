//! What every folder uses: constants, errors, statuses, handles, locks and workers.

pub mod consts;
pub mod environment;
pub mod error;
pub mod lock;
pub mod places;
pub(crate) mod spare_blocks;
pub mod status;
pub mod table;
