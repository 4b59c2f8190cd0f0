#![allow(unsafe_code)]
//! Types and constants of the MPIR message queue interface 1.0.

use std::ffi::{c_char, c_int, c_long, c_ulong, c_void};

pub use fastpath_protocol::snapshot::queues::TABLE_NAME;

/// Version of the interface.
pub const COMPATIBILITY: c_int = 2;

pub const OK: c_int = 0;
pub const NO_INFORMATION: c_int = 1;
pub const END_OF_LIST: c_int = 2;
// Codes of this library.
pub const NO_TABLE: c_int = 100;
pub const OTHER_BUILD: c_int = 101;
pub const UNREADABLE: c_int = 102;
pub const NOT_RUNNING: c_int = 103;

/// `mqs_op_class`.
pub const PENDING_SENDS: c_int = 0;
pub const PENDING_RECEIVES: c_int = 1;
pub const UNEXPECTED_MESSAGES: c_int = 2;

/// `mqs_status`.
pub const STATUS_PENDING: c_int = 0;
pub const STATUS_MATCHED: c_int = 1;

/// Rank of any source.
pub const ANY_SOURCE: Word = -1;

/// `mqs_taddr_t`.
pub type Address = c_ulong;
/// `mqs_tword_t`.
pub type Word = c_long;

/// `mqs_image`, defined by the debugger.
#[repr(C)]
pub struct Image([u8; 0]);

/// `mqs_process`, defined by the debugger.
#[repr(C)]
pub struct Process([u8; 0]);

/// `mqs_basic_callbacks`.
#[repr(C)]
pub struct BasicCallbacks {
    pub malloc: *const c_void,
    pub free: *const c_void,
    pub print: *const c_void,
    pub error_string: *const c_void,
    pub put_image_info: unsafe extern "C" fn(*mut Image, *mut c_void),
    pub get_image_info: unsafe extern "C" fn(*mut Image) -> *mut c_void,
    pub put_process_info: unsafe extern "C" fn(*mut Process, *mut c_void),
    pub get_process_info: unsafe extern "C" fn(*mut Process) -> *mut c_void,
}

/// `mqs_image_callbacks`.
#[repr(C)]
pub struct ImageCallbacks {
    pub get_type_sizes: *const c_void,
    pub find_function: *const c_void,
    pub find_symbol: unsafe extern "C" fn(*mut Image, *mut c_char, *mut Address) -> c_int,
    pub find_type: *const c_void,
    pub field_offset: *const c_void,
    pub size_of: *const c_void,
}

/// `mqs_process_callbacks`.
#[repr(C)]
pub struct ProcessCallbacks {
    pub get_global_rank: *const c_void,
    pub get_image: unsafe extern "C" fn(*mut Process) -> *mut Image,
    pub fetch_data: unsafe extern "C" fn(*mut Process, Address, c_int, *mut c_void) -> c_int,
    pub target_to_host: *const c_void,
}

/// `mqs_communicator`.
#[repr(C)]
pub struct Communicator {
    pub unique_id: Address,
    pub local_rank: Word,
    pub size: Word,
    pub name: [u8; 64],
}

/// `mqs_pending_operation`.
#[repr(C)]
pub struct PendingOperation {
    pub status: c_int,
    pub desired_local_rank: Word,
    pub desired_global_rank: Word,
    pub tag_wild: c_int,
    pub desired_tag: Word,
    pub desired_length: Word,
    pub system_buffer: c_int,
    pub buffer: Address,
    pub actual_local_rank: Word,
    pub actual_global_rank: Word,
    pub actual_tag: Word,
    pub actual_length: Word,
    pub extra_text: [[u8; 64]; 5],
}
