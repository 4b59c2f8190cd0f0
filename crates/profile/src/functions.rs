//! The measured functions.
#![allow(unsafe_code, missing_docs, non_snake_case, unused_unsafe)]
#![allow(
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks,
    clippy::too_many_arguments,
    clippy::pedantic,
    clippy::useless_conversion
)]

use crate::bytes;
use crate::library::{ByteKind, MeasuredFunction};
use crate::record::begin;
use core::ffi::{c_char, c_int, c_void};
#[cfg(target_arch = "x86_64")]
use std::arch::naked_asm;

/// Opaque type: the functions pass statuses on and never read them.
type Status = c_void;

/// Entry of a measured function: stores the return address for `site::caller` and jumps to the body.
#[cfg(target_arch = "x86_64")]
macro_rules! enter {
    () => {
        "mov rax, [rip + fastpath_profile_caller@GOTTPOFF]
         mov r11, [rsp]
         mov fs:[rax], r11
         jmp {body}"
    };
}

include!(concat!(env!("OUT_DIR"), "/functions.rs"));
