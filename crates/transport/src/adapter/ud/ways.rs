//! Address handles of peers' ports.

use super::super::port::AdapterPort;
use super::wire::HEAD;
use crate::verbs::path::PORT_ADDRESS_BYTES;
use crate::verbs::{AddressHandle, PortAddress, VerbsError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Address handles, one for each port address. They live as long as the interface: outstanding sends use them.
#[derive(Default)]
pub(super) struct AddressHandles(BTreeMap<[u8; PORT_ADDRESS_BYTES], Arc<AddressHandle>>);

impl AddressHandles {
    pub fn find(
        &mut self, from: &AdapterPort, to: &PortAddress,
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

    pub fn count(&self) -> usize {
        self.0.len()
    }
}
