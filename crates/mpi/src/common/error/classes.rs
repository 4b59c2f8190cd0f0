//! The error classes of the standard: name, meaning and remedy.

use crate::common::consts::*;

/// An error class of the standard.
#[derive(Debug)]
pub struct ErrorClass {
    /// Number of the class.
    pub code: i32,
    /// Name in C.
    pub name: &'static str,
    /// Meaning, a phrase without a full stop.
    pub meaning: &'static str,
    /// Remedy; empty if the cause implies it.
    pub advice: &'static str,
}

/// Returns the meaning of class `code`, for a rank that has only the code of another rank's error.
pub fn meaning_of(code: i32) -> &'static str {
    find(code).map_or("an error code added by the program", |class| class.meaning)
}

/// Finds the class of number `code`.
pub fn find(code: i32) -> Option<&'static ErrorClass> {
    CLASSES.iter().find(|class| class.code == code)
}

macro_rules! classes {
    ($($name:ident, $meaning:literal, $advice:literal;)*) => {
        /// All classes of the standard.
        pub static CLASSES: &[ErrorClass] = &[$(
            ErrorClass { code: $name, name: stringify!($name), meaning: $meaning, advice: $advice }
        ),*];
    };
}

classes! {
    MPI_SUCCESS, "no error", "";
    MPI_ERR_BUFFER, "invalid buffer pointer",
        "pass memory that is large enough for the count and the datatype; NULL is allowed only if \
         the count is 0";
    MPI_ERR_COUNT, "invalid count argument",
        "pass a count of 0 or more, for data of at most 2^63 - 1 bytes";
    MPI_ERR_TYPE, "invalid datatype argument",
        "use a predefined datatype, or one that is committed and not yet freed";
    MPI_ERR_TAG, "invalid tag argument",
        "pass a tag from 0 to the value of the attribute MPI_TAG_UB; MPI_ANY_TAG is for receives \
         and probes only";
    MPI_ERR_COMM, "invalid communicator",
        "pass a communicator that was created and not yet freed. MPI_COMM_WORLD and MPI_COMM_SELF \
         exist between MPI_Init and MPI_Finalize. With only sessions, create a communicator by \
         MPI_Comm_create_from_group";
    MPI_ERR_RANK, "invalid rank",
        "pass a rank from 0 to the size of the communicator minus 1";
    MPI_ERR_REQUEST, "invalid request", "pass a request that was started and has not been \
        completed or freed";
    MPI_ERR_ROOT, "invalid root", "pass the same root on all ranks, from 0 to the size of the \
                                   communicator minus 1";
    MPI_ERR_GROUP, "invalid group", "pass a group that was created and not yet freed";
    MPI_ERR_OP, "invalid reduction operation",
        "use an operation that is defined for the datatype, or one made by MPI_Op_create and not \
         yet freed";
    MPI_ERR_TOPOLOGY, "invalid topology", "pass a communicator with the topology that the call \
                                           needs";
    MPI_ERR_DIMS, "invalid dimension argument", "pass dimensions whose product fits the number of \
        processes";
    MPI_ERR_ARG, "invalid argument of some other kind", "";
    MPI_ERR_UNKNOWN, "unknown error", "";
    MPI_ERR_TRUNCATE, "more or less data than the receiver expects",
        "receive with a count that is at least as large as the sender's; MPI_Probe gives the \
         size in advance";
    MPI_ERR_OTHER, "other error", "";
    MPI_ERR_INTERN, "internal error of the MPI library", "this is a defect of Fastpath: please \
                     report this message to its developers";
    MPI_ERR_PENDING, "pending request",
        "call MPI_Wait or MPI_Test for the request again";
    MPI_ERR_IN_STATUS, "the error codes are in the statuses", "check the field MPI_ERROR of each \
                                                               status";
    MPI_ERR_ACCESS, "permission denied", "check the owner and the mode of the file and of its \
                                          folder";
    MPI_ERR_AMODE, "invalid access mode of a file",
        "pass exactly one of MPI_MODE_RDONLY, MPI_MODE_WRONLY and MPI_MODE_RDWR. Add only modes \
         that this mode permits. Pass the same access mode on all ranks";
    MPI_ERR_ASSERT, "invalid assertion argument",
        "pass 0, or a sum of the MPI_MODE_ constants that the call takes";
    MPI_ERR_BAD_FILE, "invalid file name",
        "pass a file name that is not empty and that the file system accepts";
    MPI_ERR_BASE, "invalid base address", "pass an address that MPI_Alloc_mem returned and \
                                           MPI_Free_mem has not yet freed";
    MPI_ERR_CONVERSION, "error in a data conversion function of the program",
        "check the conversion function that was passed to MPI_Register_datarep";
    MPI_ERR_DISP, "invalid displacement",
        "pass a displacement that is 0 or more";
    MPI_ERR_DUP_DATAREP, "a data representation of that name is registered already",
        "register the representation once, or use another name";
    MPI_ERR_FILE_EXISTS, "the file exists",
        "leave out MPI_MODE_EXCL, or choose another file name";
    MPI_ERR_FILE_IN_USE, "the file is open elsewhere",
        "close the file in all other processes first";
    MPI_ERR_FILE, "invalid file handle", "pass a file that was opened and not yet closed";
    MPI_ERR_INFO_KEY, "malformed key of an info object", "pass a key of 1 to 255 bytes";
    MPI_ERR_INFO_NOKEY, "the info object does not have that key",
        "use a key that MPI_Info_get_nthkey lists";
    MPI_ERR_INFO_VALUE, "malformed value of an info object", "";
    MPI_ERR_INFO, "invalid info object", "pass an info object that was created and not yet freed";
    MPI_ERR_IO, "input or output failed",
        "check the file system: its log (dmesg), its mount options and its free space";
    MPI_ERR_KEYVAL, "invalid attribute key",
        "pass a key made by the matching create function (communicator, datatype or window) and \
         not yet freed";
    MPI_ERR_LOCKTYPE, "invalid lock type", "pass MPI_LOCK_SHARED or MPI_LOCK_EXCLUSIVE";
    MPI_ERR_NAME, "no service of that name is published",
        "publish the name first by MPI_Publish_name, in a job that is still running";
    MPI_ERR_NO_MEM, "out of memory",
        "use less memory or fewer ranks, or raise the limits (ulimit -v, ulimit -l, the \
         container's memory limit)";
    MPI_ERR_NOT_SAME, "an argument differs between ranks, but must be the same on all ranks",
        "pass the same arguments on all ranks";
    MPI_ERR_NO_SPACE, "not enough space on the device",
        "free space on the device, or write to another device";
    MPI_ERR_NO_SUCH_FILE, "the file does not exist",
        "check the path, or create the file with MPI_MODE_CREATE";
    MPI_ERR_PORT, "invalid port name", "pass a port name from MPI_Open_port, while the process \
                                        that opened the port runs";
    MPI_ERR_QUOTA, "quota exceeded",
        "delete files of this user, or have the quota raised";
    MPI_ERR_READ_ONLY, "the file or file system is read-only",
        "open the file with MPI_MODE_RDWR or MPI_MODE_WRONLY, on a file system that can be \
         written";
    MPI_ERR_RMA_ATTACH, "memory cannot be attached to the window",
        "attach each piece of memory once, and detach it before it is freed";
    MPI_ERR_RMA_CONFLICT, "conflicting accesses to a window", "separate the accesses by a \
        synchronisation of the window, such as MPI_Win_fence";
    MPI_ERR_RMA_RANGE, "access beyond the memory of the window",
        "access only memory that the target rank exposes in the window";
    MPI_ERR_RMA_SHARED, "memory cannot be shared",
        "use ranks of one host (MPI_Comm_split_type with MPI_COMM_TYPE_SHARED)";
    MPI_ERR_RMA_SYNC, "wrong synchronisation of a window", "open an epoch before the access, and \
        close the epoch once";
    MPI_ERR_SERVICE, "the service name cannot be published or unpublished",
        "publish each name once; unpublish the name with its port name, in the job that published \
         the name";
    MPI_ERR_SIZE, "invalid size argument",
        "pass a size that is 0 or more";
    MPI_ERR_SPAWN, "processes cannot be started",
        "check the command, its path and the number of processes";
    MPI_ERR_UNSUPPORTED_DATAREP, "the data representation is not supported", "use \"native\"";
    MPI_ERR_UNSUPPORTED_OPERATION, "the operation is not supported", "";
    MPI_ERR_WIN, "invalid window", "pass a window that was created and not yet freed";
    MPI_ERR_RMA_FLAVOR, "the window is of the wrong flavor",
        "create the window by the function that the call needs (such as MPI_Win_create_dynamic)";
    MPI_ERR_PROC_ABORTED, "a peer process has ended", "see the first error that the job printed";
    MPI_ERR_VALUE_TOO_LARGE, "the value is too large for its type", "use the large-count form of \
        the call, whose name ends in _c";
    MPI_ERR_SESSION, "invalid session", "pass a session that was initialised and not yet finalised";
    MPI_ERR_ERRHANDLER, "invalid error handler", "pass an error handler that was made for this \
        kind of object and not yet freed";
    MPI_ERR_ABI, "invalid use of the ABI functions",
        "call the function once, before any call that uses the value set by the function";
    MPIX_ERR_PROC_FAILED, "a process that the operation needs has died",
        "call MPIX_Comm_revoke, so that all ranks learn of the failure, then MPIX_Comm_shrink, and \
         continue with the new communicator";
    MPIX_ERR_PROC_FAILED_PENDING, "a possible source of the message has died",
        "call MPIX_Comm_ack_failed to wait for the other sources, or cancel the receive";
    MPIX_ERR_REVOKED, "the communicator was revoked",
        "make a new communicator by MPIX_Comm_shrink";
    MPI_T_ERR_CANNOT_INIT, "the tool interface cannot be initialised", "";
    MPI_T_ERR_NOT_ACCESSIBLE, "the tool interface is not accessible", "";
    MPI_T_ERR_NOT_INITIALIZED, "the tool interface is not initialised", "call MPI_T_init_thread \
        first";
    MPI_T_ERR_NOT_SUPPORTED, "the tool interface does not support the requested operation", "";
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
