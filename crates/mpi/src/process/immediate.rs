//! What the immediate path is shown of the process's objects.
#![allow(unsafe_code)]

use super::Process;
use crate::common::consts::{MPI_COMM_SELF, MPI_COMM_WORLD};
use crate::common::error::Result;
use crate::common::places;
use crate::objects::comm::Comm;
use crate::objects::hot;
use fastpath_protocol::{Endpoint, Worker};

impl Process {
    /// The endpoint of a world rank, while MPI is initialised.
    pub fn endpoint_address(&self, peer: u32) -> Option<*mut Endpoint> {
        self.endpoint_at(0, peer)
    }

    /// The same of a worker at a place.
    pub(crate) fn endpoint_at(&self, place: u32, peer: u32) -> Option<*mut Endpoint> {
        let worker = self.worker_at(place).ok()?;
        // SAFETY: the worker lives as long as the engine.
        Some(unsafe { (*worker).endpoint_address(peer) })
    }

    /// Publishes a communicator to the immediate path.
    pub fn hot_comm_set(&self, handle: usize, comm: &Comm) {
        if let Some(engine) = self.engine() {
            hot::set_comm(engine.allowed, handle, comm);
        }
    }

    /// Takes a communicator out of the immediate path, before it is freed.
    pub fn hot_comm_clear(&self, handle: usize) {
        hot::clear_comm(handle);
    }

    /// Publishes a contiguous, committed datatype of `size` bytes to the immediate path.
    pub fn hot_type_set(&self, handle: usize, size: u64) {
        if self.engine().is_none_or(|engine| engine.allowed.datatype) {
            hot::set_type(handle, size);
        }
    }

    /// Takes a datatype out of the immediate path, before it is freed.
    pub fn hot_type_clear(&self, handle: usize) {
        hot::clear_type(handle);
    }

    /// Publishes what queries of the predefined datatypes answer, unless it is switched off or calls are recorded.
    pub(crate) fn hot_named_set_all(&self) {
        let engine = self.engine();
        if engine.is_some_and(|engine| !engine.allowed.traced && engine.allowed.datatype) {
            hot::set_named_all();
        }
    }

    /// Empties all entries, at finalisation.
    pub(crate) fn hot_clear_all(&self) {
        hot::clear_named_all();
        for handle in self.comms.handles() {
            self.hot_comm_clear(handle);
        }
        self.hot_comm_clear(MPI_COMM_WORLD);
        self.hot_comm_clear(MPI_COMM_SELF);
    }

    /// The worker at a place of a communicator or a request.
    pub fn worker_at(&self, place: u32) -> Result<*mut Worker> {
        match place {
            0 => self.worker(),
            place => Ok(places::worker(place)),
        }
    }

    /// The workers, the first one first, with their places.
    pub(crate) fn workers(&self) -> impl Iterator<Item = (u32, *mut Worker)> {
        places::each(places::made()).filter_map(|place| Some((place, self.worker_at(place).ok()?)))
    }
}
