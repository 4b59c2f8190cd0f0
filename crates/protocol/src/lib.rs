//! What a message is: worker, endpoint, tag matching, eager and rendezvous.

pub mod layout;
