//! The constants of the standard ABI, generated from the table of `fastpath-abigen`: integers as
//! `i32`, handles and other values of pointer types as `usize`.

include!(concat!(env!("OUT_DIR"), "/consts.rs"));
