//! Where a connection stands, of either kind.

use crate::contract::Post;
use crate::verbs::Failure;

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The peer is unknown.
    Made,
    /// What the peer sends is taken.
    Open,
    /// The peer takes what is sent.
    Ready,
    /// It works no more.
    Failed(Failure),
}

impl Stage {
    /// Whether addresses must still be exchanged.
    pub fn wants_wireup(self) -> bool {
        matches!(self, Stage::Made | Stage::Open)
    }

    /// Whether what the peer sends is taken.
    pub fn is_open(self) -> bool {
        matches!(self, Stage::Open | Stage::Ready)
    }

    /// From now on the peer takes what is sent, if this end is open.
    pub fn set_ready(&mut self) {
        if *self == Stage::Open {
            *self = Stage::Ready;
        }
    }

    /// Why it works no more, where that is so.
    pub fn failure(self) -> Option<Failure> {
        match self {
            Stage::Failed(why) => Some(why),
            _ => None,
        }
    }

    /// What a message comes to: `has_room` says whether one that can leave finds room.
    #[inline]
    pub fn admit(self, has_room: bool) -> Post {
        match self {
            Stage::Ready if has_room => Post::Done,
            Stage::Failed(_) => Post::PeerGone,
            _ => Post::NoResource,
        }
    }
}
