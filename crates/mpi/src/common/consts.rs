//! Constants of the standard ABI, generated from the table of `fastpath-abigen`. Integers are `i32`; handles and other
//! values of pointer type are `usize`.

include!(concat!(env!("OUT_DIR"), "/consts.rs"));
