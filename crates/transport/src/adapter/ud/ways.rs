//! The ways from this port to those of peers.

use super::super::port::Port;
use super::wire::HEAD;
use crate::verbs::path::PORT_ADDRESS_BYTES;
use crate::verbs::{AddressHandle, PortAddress, VerbsError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// By the address of the peer's port: its ranks share one. Kept as long as the interface, because sends may be under
/// way by any of them.
#[derive(Default)]
pub(super) struct Ways(BTreeMap<[u8; PORT_ADDRESS_BYTES], Arc<AddressHandle>>);

impl Ways {
    /// The way to a peer's port, and the bytes of a stream that one packet holds on it.
    ///
    /// # Errors
    /// There is no way, or the device refuses.
    pub fn find(
        &mut self, from: &Port, to: &PortAddress,
    ) -> Result<(Arc<AddressHandle>, usize), VerbsError> {
        let path = from.local.path_to(to)?;
        let chunk = path.mtu_bytes() - HEAD;
        let key = to.encode();
        if let Some(known) = self.0.get(&key) {
            return Ok((known.clone(), chunk));
        }
        let made = Arc::new(AddressHandle::new(&from.memory, &path)?);
        self.0.insert(key, made.clone());
        Ok((made, chunk))
    }

    /// How many have been made.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}
