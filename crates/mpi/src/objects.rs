//! The objects of MPI: groups, datatypes, operations, communicators, info, attributes.

pub mod arguments;
pub(crate) mod attached;
pub mod attribute;
pub mod comm;
pub mod datatype;
pub mod fortran;
pub mod group;
pub mod hot;
pub mod info;
pub mod message_copy;
pub mod op;
pub mod operation;
pub(crate) mod shared_buffers;
pub(crate) mod shared_lines;
pub mod staging;
pub mod topology;
