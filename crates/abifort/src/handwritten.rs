//! Entry points written by hand, for both `mpi_x_` and `pmpi_x_`: the first argument is the C function to call.
//!
//! The arguments are those of the Fortran procedure; see ARGUMENTS at the head of the crate.

mod attributes;
mod callbacks;
mod extras;
mod removed;
mod spawn;
mod strings;
mod types;

pub use attributes::{
    attr_get, attr_put, comm_create_keyval, comm_get_attr, comm_set_attr, keyval_create,
    type_create_keyval, type_get_attr, type_set_attr, win_create_keyval, win_get_attr,
    win_set_attr,
};
pub use callbacks::{
    comm_create_errhandler, file_create_errhandler, grequest_start, op_create, op_create_c,
    register_datarep, register_datarep_c, session_create_errhandler, win_create_errhandler,
};
pub use spawn::{comm_spawn, comm_spawn_multiple};
pub use strings::{info_get_string, session_get_nth_pset};
pub use types::{
    cartesian_dimensions, keep_types, peer_types, room_for_dimensions, room_for_types,
};
