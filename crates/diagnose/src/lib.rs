//! Reports on installation and machine (`fastpath info`), running jobs (`fastpath ps`), and problems of adapters,
//! libraries, limits and hosts (`fastpath doctor`).

pub mod doctor;
pub mod info;
mod library;
mod on_hosts;
pub mod ps;
