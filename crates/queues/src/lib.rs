//! `libfastpath_dbg.so`: the library that debuggers load to list the message queues of a rank. It implements the MPIR
//! message queue interface 1.0, 2013, compatibility number 2.
//!
//! The debugger stops the rank, calls `mqs_*`, and lends callbacks that read symbols and memory of the rank. The queues
//! are those of `fastpath_protocol::snapshot::queues`: sends and receives that are not complete, and messages that the
//! rank has taken from its rings before a receive matched them. Messages that still lie in the rings are not listed.

mod exports;
mod interface;
mod process;
