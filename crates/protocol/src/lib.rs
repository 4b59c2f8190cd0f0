//! What a message is: worker, endpoint, tag matching, eager and rendezvous.

pub mod buffer;
pub mod layout;
pub mod tag;
