//! Stage of a connection.

use crate::contract::Post;
use crate::verbs::Failure;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Made,
    Open,
    Ready,
    Failed(Failure),
}

impl Stage {
    pub fn wants_wireup(self) -> bool {
        matches!(self, Stage::Made | Stage::Open)
    }

    pub fn is_open(self) -> bool {
        matches!(self, Stage::Open | Stage::Ready)
    }

    pub fn set_ready(&mut self) {
        if *self == Stage::Open {
            *self = Stage::Ready;
        }
    }

    pub fn failure(self) -> Option<Failure> {
        match self {
            Stage::Failed(why) => Some(why),
            _ => None,
        }
    }

    /// Result of a post now: `Done` if the message can be sent. `has_room`: whether a ready connection has room for it.
    #[inline]
    pub fn admit(self, has_room: bool) -> Post {
        match self {
            Stage::Ready if has_room => Post::Done,
            Stage::Failed(_) => Post::PeerGone,
            _ => Post::NoResource,
        }
    }
}
