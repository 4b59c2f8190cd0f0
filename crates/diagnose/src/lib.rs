//! Reports what is installed and works (`fastpath info`), what running jobs do (`fastpath ps`), and what is wrong with
//! adapters, libraries, limits and hosts (`fastpath doctor`).

pub mod doctor;
pub mod info;
mod library;
mod on_hosts;
pub mod ps;
