//! Resolution of a key: chooses lane and access path once and stores them with the key.

use crate::request::Fault;
use crate::rma::ask::AskBackoff;
use crate::rma::error::RmaError;
use crate::rma::key::UnpackedKey;
use crate::rma::resolve::{AccessPath, RemoteKey, choose_way};
use crate::worker::Worker;

impl Worker {
    /// Resolves `bytes`, a key of `peer`. Lane and access path are chosen now, and after each change of a lane.
    ///
    /// # Errors
    /// `BadKey` if `bytes` are not a key of this peer. A forged key can only name memory of this peer.
    pub fn unpack_key(&mut self, peer: u32, bytes: &[u8]) -> Result<RemoteKey, RmaError> {
        if peer >= self.present() {
            return Err(RmaError::BadKey("the owner of the memory is not a rank of this job"));
        }
        // A key of a rank of another job contains the rank's number in that job.
        let owner = self.job.origin(peer as usize).rank;
        let described = UnpackedKey::unpack(bytes, owner)?;
        let mut key = RemoteKey {
            generation: self.rma.generation.wrapping_sub(1),
            way: AccessPath::Messages,
            base: std::ptr::null_mut(),
            len: described.len,
            peer,
            described,
            mapped: None,
            refused: false,
            asked: AskBackoff::default(),
        };
        self.resolve_key(&mut key)?;
        Ok(key)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn resolve_key(&mut self, key: &mut RemoteKey) -> Result<(), RmaError> {
        self.rma.counters.resolved += 1;
        let (peer, described) = (key.peer, key.described);
        if peer == self.rank {
            let base = self.locate_own(&described)?;
            key.base = base.unwrap_or(std::ptr::null_mut());
            key.way = if base.is_some() { AccessPath::LoadStore } else { AccessPath::Messages };
        } else {
            self.hold_lane(peer).map_err(|fault| match fault {
                Fault::NoMemory => RmaError::NoMemory,
                _ => RmaError::PeerGone,
            })?;
            let direct = self.planner.thresholds.direct != u64::MAX;
            let lane = &self.endpoints[peer].lane;
            key.way = choose_way(lane, &described, direct, key.refused);
            if key.way == AccessPath::LoadStore && !self.map_key(key) {
                key.way = choose_way(&self.endpoints[peer].lane, &described, false, key.refused);
            }
            if matches!(key.way, AccessPath::Adapter | AccessPath::Messages) {
                self.connect(peer).map_err(|_| RmaError::NoMemory)?;
            }
        }
        key.generation = match self.rma.resolves_once {
            true => self.rma.generation,
            false => self.rma.generation.wrapping_sub(1),
        };
        Ok(())
    }

    /// Returns whether this rank and `peer` reach each other's memory of [`Worker::allocate_memory`] by load and store.
    pub fn shares_memory(&mut self, peer: u32) -> bool {
        self.hold_lane(peer).is_ok() && self.endpoints[peer].lane.can_load_store()
    }

    /// Returns the name of the access path of a put or get, or of the method that an adapter chooses by size.
    pub fn name_method(&self, key: &RemoteKey, puts: bool, bytes: usize) -> &'static str {
        let lane = &self.endpoints[key.peer].lane;
        let method = match (key.way, puts) {
            (AccessPath::Adapter, true) => lane.put_method(bytes),
            (AccessPath::Adapter, false) => lane.get_method(bytes),
            _ => None,
        };
        method.map_or_else(|| key.way.name(), |method| method.name())
    }

    pub(super) fn map_key(&self, key: &mut RemoteKey) -> bool {
        if key.mapped.is_none() {
            let at = key.described.arena.unwrap_or(0);
            let mapped = self.interfaces.map_memory(key.peer, at, key.len as usize);
            key.mapped = mapped.ok();
        }
        match &key.mapped {
            Some(mapped) => {
                key.base = mapped.base();
                true
            }
            None => false,
        }
    }

    /// Invalidates resolved keys after a lane was made or replaced.
    pub(crate) fn note_lane_change(&mut self) {
        self.rma.generation = self.rma.generation.wrapping_add(1);
    }
}
