//! `fastpath compare`: compares this MPI with others in one run, or two stored results.

pub mod kept;
pub mod loads;
pub mod options;
pub mod rounds;
pub mod run;
pub mod turns;
