//! The memory domain: the device, its port, and the ways from there to peers' ports.

use super::wire::HEAD;
use crate::verbs::path::PORT_ADDRESS_BYTES;
use crate::verbs::{
    Access, AddressHandle, Buffer, DeviceContext, LocalPort, PortAddress, ProtectionDomain,
    VerbsError,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A device with the port that is used.
pub struct Domain {
    /// By the address of the peer's port: its ranks share one. Kept as long as the interface, because sends may be
    /// under way by any of them.
    handles: BTreeMap<[u8; PORT_ADDRESS_BYTES], Arc<AddressHandle>>,
    pub(super) memory: Arc<ProtectionDomain>,
    pub(super) port: LocalPort,
}

impl Domain {
    /// The domain of a device's port: `port`, or else its first active one.
    ///
    /// # Errors
    /// No such port, none active, or the device refuses.
    pub fn new(context: &Arc<DeviceContext>, port: Option<u8>) -> Result<Self, VerbsError> {
        Ok(Domain {
            handles: BTreeMap::new(),
            port: LocalPort::choose(context, port)?,
            memory: ProtectionDomain::new(context)?,
        })
    }

    /// Name of the device, and number of the port.
    pub fn port_name(&self) -> (String, u8) {
        let name = self.memory.context().name().to_owned();
        (name, self.port.number())
    }

    /// Whether the port can be used now.
    pub(super) fn is_active(&self) -> bool {
        self.port.is_active(self.memory.context())
    }

    /// Device, port and packet size, for people.
    pub fn describe(&self) -> String {
        let (name, port) = (self.memory.context().name(), &self.port);
        format!("{name} port {}, MTU {}", port.number(), port.mtu_bytes())
    }

    /// The way to a peer's port, and the bytes of a stream that one packet holds on it.
    ///
    /// # Errors
    /// There is no way, or the device refuses.
    pub(super) fn find_way(
        &mut self,
        port: &PortAddress,
    ) -> Result<(Arc<AddressHandle>, usize), VerbsError> {
        let path = self.port.path_to(port)?;
        let chunk = path.mtu_bytes() - HEAD;
        let key = port.encode();
        if let Some(known) = self.handles.get(&key) {
            return Ok((known.clone(), chunk));
        }
        let made = Arc::new(AddressHandle::new(&self.memory, &path)?);
        self.handles.insert(key, made.clone());
        Ok((made, chunk))
    }

    /// Ways that have been made.
    pub(super) fn handles(&self) -> usize {
        self.handles.len()
    }

    /// Pages of the process's own, registered.
    pub(super) fn buffer(&self, len: usize, access: Access) -> Result<Buffer, VerbsError> {
        Buffer::new(&self.memory, len, access)
    }
}
