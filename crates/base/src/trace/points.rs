//! Points of a trace.

/// Phase of a point: whether it begins or ends an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointPhase {
    /// Begins an interval, ended by the next `End` on the same level.
    Begin,
    /// Ends the last interval begun.
    End,
    /// Marks a single moment.
    Moment,
}

/// Defines the points: number, phase, name, and the names of `peer`, `tag` and `bytes` (empty: not shown).
macro_rules! points {
    ($($(#[doc = $doc:literal])+ $point:ident $phase:ident $name:literal $fields:expr;)*) => {
        /// A place in the code that is recorded when it is passed.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Point { #[default] $($(#[doc = $doc])+ $point,)* }

        impl Point {
            /// All points, in the order of their numbers.
            pub const ALL: &'static [Point] = &[$(Point::$point,)*];

            /// Returns the point of a number.
            pub fn from_number(number: u8) -> Option<Point> {
                Point::ALL.get(number as usize).copied()
            }

            /// Returns the phase of the point.
            pub fn phase(self) -> PointPhase {
                match self { $(Point::$point => PointPhase::$phase,)* }
            }

            /// Returns the name of the point.
            pub fn name(self) -> &'static str {
                match self { $(Point::$point => $name,)* }
            }

            /// Returns the names of peer, tag and bytes; empty for a field that the point lacks.
            pub fn fields(self) -> [&'static str; 3] {
                match self { $(Point::$point => $fields,)* }
            }
        }
    };
}

const MESSAGE: [&str; 3] = ["peer", "tag", "bytes"];
const PIECE: [&str; 3] = ["peer", "", "bytes"];
/// Fields of a window's point. The tag is the window's handle as an integer, and the trace has the window's name.
const IN_WINDOW: [&str; 3] = ["peer", "handle", "bytes"];
const AT_WINDOW: [&str; 3] = ["peer", "handle", ""];
const WINDOW: [&str; 3] = ["", "handle", ""];
const NOTHING: [&str; 3] = ["", "", ""];

points! {
    /// An MPI call was entered; `bytes` is the number of its name.
    Call Begin "call" NOTHING;
    /// The call returned.
    Return End "return" NOTHING;
    /// A message was sent in one slot.
    PostShort Moment "post: short" MESSAGE;
    /// A send begins; the protocol follows.
    Post Begin "post" MESSAGE;
    /// The send was posted or queued.
    Posted End "posted" NOTHING;
    /// No credit was left; the send waits.
    NoRoom Moment "post: no room" MESSAGE;
    /// The whole message was sent eagerly.
    Eager Moment "post: eager" MESSAGE;
    /// The message was announced by an RTS, with `bytes` of its first bytes.
    Announced Moment "post: RTS" MESSAGE;
    /// A fragment was posted.
    Fragment Moment "post: fragment" PIECE;
    /// A sleeping peer was woken.
    Wake Moment "wake peer" PIECE;
    /// A message in a slot was copied into the buffer of a posted receive.
    TakeShort Moment "poll: short" MESSAGE;
    /// A message arrived; `tag` is the number of its kind (protocol/src/wire.rs).
    Arrival Begin "poll: arrival" ["peer", "kind", "bytes"];
    /// The arrival was handled.
    Handled End "handled" NOTHING;
    /// An arrival without a posted receive was stored.
    Unexpected Moment "unexpected" MESSAGE;
    /// A single copy begins.
    Copy Begin "single copy" PIECE;
    /// The single copy ended.
    Copied End "copied" NOTHING;
    /// A wait begins, after one poll without success.
    Wait Begin "wait" PIECE;
    /// The wait ended.
    Waited End "waited" NOTHING;
    /// A progress call found something.
    Progress Moment "poll: progress" NOTHING;
    /// The process begins to sleep.
    Sleep Begin "sleep" NOTHING;
    /// The process was woken.
    Woken End "woken" NOTHING;
    /// A read by the adapter begins, from the peer's memory into this process's.
    Read Begin "RDMA read" PIECE;
    /// The read ended.
    ReadDone End "read" NOTHING;
    /// A put to a window's memory.
    Put Moment "put" IN_WINDOW;
    /// A get from a window's memory.
    Get Moment "get" IN_WINDOW;
    /// An accumulate or a compare on a window's memory.
    Accumulate Moment "accumulate" IN_WINDOW;
    /// A lock of the window's memory at `peer` was acquired, after any wait.
    Lock Moment "lock" AT_WINDOW;
    /// The lock was released.
    Unlock Moment "unlock" AT_WINDOW;
    /// Operations to one rank of the window are complete.
    Flush Moment "flush" AT_WINDOW;
    /// Operations to all ranks of the window are complete.
    FlushAll Moment "flush all" WINDOW;
    /// An epoch begins: after a fence, or by start, post or lock all.
    EpochBegins Moment "epoch begins" WINDOW;
    /// The epoch ends.
    EpochEnds Moment "epoch ends" WINDOW;
    /// A read of a file begins.
    FileRead Begin "file: read" ["", "", "bytes"];
    /// The read ended or failed.
    FileReadDone End "file: read done" NOTHING;
    /// A write of a file begins.
    FileWrite Begin "file: write" ["", "", "bytes"];
    /// The write ended or failed.
    FileWriteDone End "file: write done" NOTHING;
}
