//! The points that exist.

/// How a point stands in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Something begins, which the next `End` on the same level ends.
    Begin,
    /// What began last ends.
    End,
    /// A moment.
    Moment,
}

/// Defines the points with what is shown of them: number, phase, name, what `peer`, `tag` and `bytes` are called
/// (an empty name: not shown).
macro_rules! points {
    ($($(#[doc = $doc:literal])+ $point:ident $phase:ident $name:literal $fields:expr;)*) => {
        /// A place in the code that is recorded when it is passed.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Point { #[default] $($(#[doc = $doc])+ $point,)* }

        impl Point {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Point] = &[$(Point::$point,)*];

            /// The point of a number.
            pub fn from_number(number: u8) -> Option<Point> {
                Point::ALL.get(number as usize).copied()
            }

            /// How it stands in time.
            pub fn phase(self) -> Phase {
                match self { $(Point::$point => Phase::$phase,)* }
            }

            /// What it is called.
            pub fn name(self) -> &'static str {
                match self { $(Point::$point => $name,)* }
            }

            /// What its fields are called: peer, tag and bytes. Empty: it has no such field.
            pub fn fields(self) -> [&'static str; 3] {
                match self { $(Point::$point => $fields,)* }
            }
        }
    };
}

const MESSAGE: [&str; 3] = ["peer", "tag", "bytes"];
const PIECE: [&str; 3] = ["peer", "", "bytes"];
/// Of a window: its handle as an integer; the trace says its name too.
const IN_WINDOW: [&str; 3] = ["peer", "handle", "bytes"];
const AT_WINDOW: [&str; 3] = ["peer", "handle", ""];
const WINDOW: [&str; 3] = ["", "handle", ""];
const NOTHING: [&str; 3] = ["", "", ""];

points! {
    /// An MPI call was entered; its name is the number in `bytes`.
    Call Begin "call" NOTHING;
    /// The call returns.
    Return End "return" NOTHING;
    /// A message went out in one slot.
    PostShort Moment "post: short" MESSAGE;
    /// A message is to be sent; which way follows.
    Post Begin "post" MESSAGE;
    /// Posted, or queued.
    Posted End "posted" NOTHING;
    /// There was no room: it waits for some.
    NoRoom Moment "post: no room" MESSAGE;
    /// All of the message was posted without asking.
    Eager Moment "post: eager" MESSAGE;
    /// The message was announced, with so many of its first bytes.
    Announced Moment "post: RTS" MESSAGE;
    /// A fragment was posted.
    Fragment Moment "post: fragment" PIECE;
    /// A peer that slept was woken.
    Wake Moment "wake peer" PIECE;
    /// A message in a slot was taken, into the buffer of a receive that was called.
    TakeShort Moment "poll: short" MESSAGE;
    /// Something arrived: `tag` is the number of its kind (protocol/src/wire.rs).
    Arrival Begin "poll: arrival" ["peer", "kind", "bytes"];
    /// It has been dealt with.
    Handled End "handled" NOTHING;
    /// No receive was there for it: it is kept.
    Unexpected Moment "unexpected" MESSAGE;
    /// A single copy begins.
    Copy Begin "single copy" PIECE;
    /// It ends.
    Copied End "copied" NOTHING;
    /// A wait begins: the first look found nothing.
    Wait Begin "wait" PIECE;
    /// What was waited for is there.
    Waited End "waited" NOTHING;
    /// A look at everything moved something.
    Progress Moment "poll: progress" NOTHING;
    /// The process goes to sleep.
    Sleep Begin "sleep" NOTHING;
    /// It was woken.
    Woken End "woken" NOTHING;
    /// A read by an adapter begins, from the peer's memory into this process's.
    Read Begin "RDMA read" PIECE;
    /// It ends.
    ReadDone End "read" NOTHING;
    /// Bytes go to a window's memory.
    Put Moment "put" IN_WINDOW;
    /// Bytes come from a window's memory.
    Get Moment "get" IN_WINDOW;
    /// Elements of a window's memory are combined with others, or compared.
    Accumulate Moment "accumulate" IN_WINDOW;
    /// A lock of a window is taken, of memory of `peer`; a wait for it lies before.
    Lock Moment "lock" AT_WINDOW;
    /// It is given back.
    Unlock Moment "unlock" AT_WINDOW;
    /// What was begun to a rank of a window is complete.
    Flush Moment "flush" AT_WINDOW;
    /// What was begun to any rank of a window is complete.
    FlushAll Moment "flush all" WINDOW;
    /// An epoch begins: after a fence, or by start, post or lock all.
    EpochBegins Moment "epoch begins" WINDOW;
    /// It ends.
    EpochEnds Moment "epoch ends" WINDOW;
    /// Bytes of a file are being read.
    FileRead Begin "file: read" ["", "", "bytes"];
    /// They have been, or that has failed.
    FileReadDone End "file: read done" NOTHING;
    /// Bytes of a file are being written.
    FileWrite Begin "file: write" ["", "", "bytes"];
    /// They have been, or that has failed.
    FileWriteDone End "file: write done" NOTHING;
}
