//! Handles as integers (MPI 5.0, chapter 20).
//!
//! A handle is its integer: predefined handles are the numbers of the standard, others lie between
//! 2^30 and 2^31. So both directions only change the type, whatever the object.

use core::ffi::c_int;

fn to_int(handle: usize) -> c_int {
    handle as c_int
}

fn from_int(handle: c_int) -> usize {
    handle as u32 as usize
}

/// `MPI_Comm_toint`
pub fn comm_toint(comm: usize) -> c_int {
    to_int(comm)
}

/// `MPI_Comm_fromint`
pub fn comm_fromint(comm: c_int) -> usize {
    from_int(comm)
}

/// `MPI_Errhandler_toint`
pub fn errhandler_toint(errhandler: usize) -> c_int {
    to_int(errhandler)
}

/// `MPI_Errhandler_fromint`
pub fn errhandler_fromint(errhandler: c_int) -> usize {
    from_int(errhandler)
}

/// `MPI_File_toint`
pub fn file_toint(file: usize) -> c_int {
    to_int(file)
}

/// `MPI_File_fromint`
pub fn file_fromint(file: c_int) -> usize {
    from_int(file)
}

/// `MPI_Group_toint`
pub fn group_toint(group: usize) -> c_int {
    to_int(group)
}

/// `MPI_Group_fromint`
pub fn group_fromint(group: c_int) -> usize {
    from_int(group)
}

/// `MPI_Info_toint`
pub fn info_toint(info: usize) -> c_int {
    to_int(info)
}

/// `MPI_Info_fromint`
pub fn info_fromint(info: c_int) -> usize {
    from_int(info)
}

/// `MPI_Message_toint`
pub fn message_toint(message: usize) -> c_int {
    to_int(message)
}

/// `MPI_Message_fromint`
pub fn message_fromint(message: c_int) -> usize {
    from_int(message)
}

/// `MPI_Op_toint`
pub fn op_toint(op: usize) -> c_int {
    to_int(op)
}

/// `MPI_Op_fromint`
pub fn op_fromint(op: c_int) -> usize {
    from_int(op)
}

/// `MPI_Request_toint`
pub fn request_toint(request: usize) -> c_int {
    to_int(request)
}

/// `MPI_Request_fromint`
pub fn request_fromint(request: c_int) -> usize {
    from_int(request)
}

/// `MPI_Session_toint`
pub fn session_toint(session: usize) -> c_int {
    to_int(session)
}

/// `MPI_Session_fromint`
pub fn session_fromint(session: c_int) -> usize {
    from_int(session)
}

/// `MPI_Type_toint`
pub fn type_toint(datatype: usize) -> c_int {
    to_int(datatype)
}

/// `MPI_Type_fromint`
pub fn type_fromint(datatype: c_int) -> usize {
    from_int(datatype)
}

/// `MPI_Win_toint`
pub fn win_toint(win: usize) -> c_int {
    to_int(win)
}

/// `MPI_Win_fromint`
pub fn win_fromint(win: c_int) -> usize {
    from_int(win)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_mpi::consts::MPI_COMM_WORLD;

    #[test]
    fn handles__survive_the_way_there_and_back() {
        assert_eq!(comm_toint(MPI_COMM_WORLD), 257);
        for handle in [1, 4095, 1 << 30, (1 << 31) - 1] {
            assert_eq!(from_int(to_int(handle)), handle);
        }
    }
}
