//! `fastpath compare`: compares this MPI with others in one run, or a stored result with another.

pub mod kept;
pub mod loads;
pub mod options;
pub mod peers;
pub mod rounds;
pub mod run;
pub mod turns;
