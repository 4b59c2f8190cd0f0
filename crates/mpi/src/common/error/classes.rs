//! The error classes of the standard: name, meaning, and what a user can do about it.

use crate::common::consts::*;

/// An error class of the standard.
#[derive(Debug)]
pub struct Class {
    /// Its number.
    pub code: i32,
    /// Its name in C.
    pub name: &'static str,
    /// What it means, a phrase without a full stop.
    pub meaning: &'static str,
    /// What to do about it; empty where the cause says it all.
    pub advice: &'static str,
}

/// What an error of that class means, for ranks that know no more of it.
pub fn meaning_of(code: i32) -> &'static str {
    find(code).map_or("an error of its own", |class| class.meaning)
}

/// The class of that number.
pub fn find(code: i32) -> Option<&'static Class> {
    CLASSES.iter().find(|class| class.code == code)
}

macro_rules! classes {
    ($($name:ident, $meaning:literal, $advice:literal;)*) => {
        /// All classes.
        pub static CLASSES: &[Class] = &[$(
            Class { code: $name, name: stringify!($name), meaning: $meaning, advice: $advice }
        ),*];
    };
}

classes! {
    MPI_SUCCESS, "no error", "";
    MPI_ERR_BUFFER, "invalid buffer pointer",
        "pass memory that is large enough for the count and the datatype, and not null unless the \
         count is 0";
    MPI_ERR_COUNT, "invalid count argument", "pass a count that is 0 or more";
    MPI_ERR_TYPE, "invalid datatype argument",
        "use a predefined datatype, or one that is committed and not yet freed";
    MPI_ERR_TAG, "invalid tag argument",
        "pass a tag from 0 to the attribute MPI_TAG_UB; MPI_ANY_TAG only where a message is \
         received";
    MPI_ERR_COMM, "invalid communicator",
        "pass a communicator that was created and not yet freed, or MPI_COMM_WORLD and \
         MPI_COMM_SELF between MPI_Init and MPI_Finalize; with only sessions, create one from a \
         group of the session (MPI_Comm_create_from_group)";
    MPI_ERR_RANK, "invalid rank",
        "pass a rank from 0 to the size of the communicator less 1, or MPI_PROC_NULL";
    MPI_ERR_REQUEST, "invalid request", "pass a request that was started and has not been \
        completed or freed";
    MPI_ERR_ROOT, "invalid root", "pass the same root on all ranks, from 0 to the size of the \
        communicator less 1";
    MPI_ERR_GROUP, "invalid group", "pass a group that was created and not yet freed";
    MPI_ERR_OP, "invalid reduction operation",
        "use an operation that is defined for the datatype, or one made by MPI_Op_create and not \
         yet freed";
    MPI_ERR_TOPOLOGY, "invalid topology", "call it on a communicator that has the topology it \
        asks about";
    MPI_ERR_DIMS, "invalid dimension argument", "pass dimensions whose product fits the number of \
        processes";
    MPI_ERR_ARG, "invalid argument of some other kind", "";
    MPI_ERR_UNKNOWN, "unknown error", "";
    MPI_ERR_TRUNCATE, "data that does not fit what the receiver expects",
        "receive with a count that is at least as large as the sender's; MPI_Probe gives the \
         size in advance";
    MPI_ERR_OTHER, "other error", "";
    MPI_ERR_INTERN, "internal error of the MPI library", "this is a defect of Fastpath: please \
        report it with this message";
    MPI_ERR_PENDING, "pending request", "";
    MPI_ERR_IN_STATUS, "the error codes are in the statuses", "look at MPI_ERROR of each status";
    MPI_ERR_ACCESS, "permission denied", "look at owner and mode of the file and of its folder";
    MPI_ERR_AMODE, "invalid access mode of a file",
        "pass exactly one of MPI_MODE_RDONLY, MPI_MODE_WRONLY and MPI_MODE_RDWR, the same on all \
         ranks";
    MPI_ERR_ASSERT, "invalid assertion argument", "";
    MPI_ERR_BAD_FILE, "invalid file name", "";
    MPI_ERR_BASE, "invalid base address", "pass memory that MPI_Alloc_mem gave and MPI_Free_mem \
        has not taken back";
    MPI_ERR_CONVERSION, "error in a user's conversion function of data", "";
    MPI_ERR_DISP, "invalid displacement", "";
    MPI_ERR_DUP_DATAREP, "a data representation of that name is registered already", "";
    MPI_ERR_FILE_EXISTS, "the file exists", "";
    MPI_ERR_FILE_IN_USE, "the file is open elsewhere", "";
    MPI_ERR_FILE, "invalid file handle", "pass a file that was opened and not yet closed";
    MPI_ERR_INFO_KEY, "malformed key of an info object", "pass a key of 1 to 255 bytes";
    MPI_ERR_INFO_NOKEY, "the info object does not have that key", "";
    MPI_ERR_INFO_VALUE, "malformed value of an info object", "pass a value of at most 1023 bytes";
    MPI_ERR_INFO, "invalid info object", "pass an info object that was created and not yet freed";
    MPI_ERR_IO, "input or output failed", "";
    MPI_ERR_KEYVAL, "invalid attribute key",
        "pass a key made by the matching create function (communicator, datatype or window) and \
         not yet freed";
    MPI_ERR_LOCKTYPE, "invalid lock type", "pass MPI_LOCK_SHARED or MPI_LOCK_EXCLUSIVE";
    MPI_ERR_NAME, "no service of that name is published", "";
    MPI_ERR_NO_MEM, "out of memory", "";
    MPI_ERR_NOT_SAME, "arguments differ between ranks that must pass the same", "";
    MPI_ERR_NO_SPACE, "not enough space on the device", "";
    MPI_ERR_NO_SUCH_FILE, "the file does not exist", "";
    MPI_ERR_PORT, "invalid port name", "pass the name that MPI_Open_port gave, while the process \
        that opened it runs";
    MPI_ERR_QUOTA, "quota exceeded", "";
    MPI_ERR_READ_ONLY, "the file or file system is read-only", "";
    MPI_ERR_RMA_ATTACH, "memory cannot be attached to the window", "";
    MPI_ERR_RMA_CONFLICT, "conflicting accesses to a window", "separate them by a synchronisation \
        of the window";
    MPI_ERR_RMA_RANGE, "access beyond the memory of the window", "";
    MPI_ERR_RMA_SHARED, "memory cannot be shared", "";
    MPI_ERR_RMA_SYNC, "wrong synchronisation of a window", "open an epoch before the access and \
        close it once";
    MPI_ERR_SERVICE, "the service name cannot be unpublished", "";
    MPI_ERR_SIZE, "invalid size argument", "";
    MPI_ERR_SPAWN, "processes cannot be started", "";
    MPI_ERR_UNSUPPORTED_DATAREP, "the data representation is not supported", "use \"native\"";
    MPI_ERR_UNSUPPORTED_OPERATION, "the operation is not supported", "";
    MPI_ERR_WIN, "invalid window", "pass a window that was created and not yet freed";
    MPI_ERR_RMA_FLAVOR, "the window is of the wrong flavor", "";
    MPI_ERR_PROC_ABORTED, "a peer process has ended", "look at the first failure of the job";
    MPI_ERR_VALUE_TOO_LARGE, "the value is too large for its type", "use the large-count form of \
        the call, whose name ends in _c";
    MPI_ERR_SESSION, "invalid session", "pass a session that was initialised and not yet finalised";
    MPI_ERR_ERRHANDLER, "invalid error handler", "pass an error handler that was made for this \
        kind of object and not yet freed";
    MPI_ERR_ABI, "invalid use of the ABI functions", "";
    MPI_T_ERR_CANNOT_INIT, "the tool interface cannot be initialised", "";
    MPI_T_ERR_NOT_ACCESSIBLE, "the tool interface is not accessible", "";
    MPI_T_ERR_NOT_INITIALIZED, "the tool interface is not initialised", "call MPI_T_init_thread \
        first";
    MPI_T_ERR_NOT_SUPPORTED, "the tool interface does not support this", "";
    MPI_T_ERR_MEMORY, "out of memory", "";
    MPI_T_ERR_INVALID, "invalid use of the tool interface", "";
    MPI_T_ERR_INVALID_INDEX, "invalid index of the tool interface", "";
    MPI_T_ERR_INVALID_ITEM, "invalid item of an enumeration", "";
    MPI_T_ERR_INVALID_SESSION, "invalid session of performance variables", "";
    MPI_T_ERR_INVALID_HANDLE, "invalid handle of the tool interface", "";
    MPI_T_ERR_INVALID_NAME, "no variable or category has that name", "";
    MPI_T_ERR_OUT_OF_HANDLES, "no handle of the tool interface is free", "";
    MPI_T_ERR_OUT_OF_SESSIONS, "no session of performance variables is free", "";
    MPI_T_ERR_CVAR_SET_NOT_NOW, "the control variable cannot be set at this time", "";
    MPI_T_ERR_CVAR_SET_NEVER, "the control variable cannot be set", "";
    MPI_T_ERR_PVAR_NO_WRITE, "the performance variable cannot be written", "";
    MPI_T_ERR_PVAR_NO_STARTSTOP, "the performance variable cannot be started or stopped", "";
    MPI_T_ERR_PVAR_NO_ATOMIC, "the performance variable cannot be read and reset at once", "";
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn classes__are_complete_and_fit_the_string() {
        for code in 0..=MPI_ERR_ABI {
            assert!(find(code).is_some(), "class {code}");
        }
        for code in MPI_T_ERR_CANNOT_INIT..=MPI_T_ERR_PVAR_NO_ATOMIC {
            assert!(find(code).is_some(), "class {code}");
        }
        for class in CLASSES {
            let length = class.name.len() + 2 + class.meaning.len();
            assert!(length < MPI_MAX_ERROR_STRING as usize && !class.meaning.ends_with('.'));
        }
        assert!(find(-1).is_none() && find(MPI_ERR_ABI + 1).is_none());
    }
}
