//! Neighbours of a process in a communicator's topology.

use super::Comm;
use crate::common::consts::MPI_PROC_NULL;
use crate::common::error::Result;
use crate::objects::topology::Topology;
use std::rc::Rc;

/// Sources and destinations of the calling process.
#[derive(Debug)]
pub struct Neighborhood {
    /// Ranks of the neighbours. `MPI_PROC_NULL` stands for a neighbour beyond the edge of a grid.
    sources: Vec<i32>,
    destinations: Vec<i32>,
    is_grid: bool,
}

impl Neighborhood {
    /// Returns the neighbours in `comm`'s topology, which never changes. Errors: `MPI_ERR_TOPOLOGY` without a topology.
    pub fn of(comm: &Comm) -> Result<Rc<Neighborhood>> {
        if let Some(known) = comm.neighbors.get() {
            return Ok(known.clone());
        }
        let topology = comm.find_topology()?;
        let found = Rc::new(Neighborhood {
            sources: topology.sources(comm.rank),
            destinations: topology.destinations(comm.rank),
            is_grid: matches!(*topology, Topology::Cart(_)),
        });
        Ok(comm.neighbors.get_or_init(|| found).clone())
    }

    /// Number of sources.
    pub fn indegree(&self) -> u32 {
        self.sources.len() as u32
    }

    /// Number of destinations.
    pub fn outdegree(&self) -> u32 {
        self.destinations.len() as u32
    }

    /// Returns each source with its position in the list of sources, in the order in which the messages of one peer
    /// arrive.
    pub(crate) fn receives(&self) -> impl Iterator<Item = (u32, u32)> {
        let turn = usize::from(self.is_grid);
        let places = (0..self.sources.len()).map(move |place| place ^ turn);
        places.filter_map(|place| Some((u32::try_from(self.sources[place]).ok()?, place as u32)))
    }

    /// Returns each destination with its position in the list of destinations.
    pub(crate) fn sends(&self) -> impl Iterator<Item = (u32, u32)> {
        let all = (0..).zip(&self.destinations);
        all.filter_map(|(place, &rank)| Some((u32::try_from(rank).ok()?, place)))
    }
}

const _: () = assert!(MPI_PROC_NULL < 0);
