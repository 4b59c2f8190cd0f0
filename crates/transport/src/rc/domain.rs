//! The memory domain: the device, its port, and memory that the device may reach.

use super::registrations::Registrations;
use crate::verbs::{Access, Buffer, DeviceContext, LocalPort, ProtectionDomain, VerbsError};
use std::sync::Arc;

/// A device with the port that is used, and registrations.
pub struct Domain {
    /// They go before what they were made of.
    pub registrations: Registrations,
    pub(super) memory: Arc<ProtectionDomain>,
    pub(super) port: LocalPort,
}

impl Domain {
    /// The domain of a device's port: `port`, or else its first active one.
    ///
    /// # Errors
    /// No such port, none active, or the device refuses.
    pub fn new(context: &Arc<DeviceContext>, port: Option<u8>) -> Result<Self, VerbsError> {
        let port = LocalPort::choose(context, port)?;
        let memory = ProtectionDomain::new(context)?;
        Ok(Domain {
            registrations: Registrations::new(&memory),
            memory,
            port,
        })
    }

    /// Name of the device, and number of the port.
    pub fn port_name(&self) -> (String, u8) {
        let name = self.memory.context().name().to_owned();
        (name, self.port.number())
    }

    /// Device, port and packet size, for people.
    pub fn describe(&self) -> String {
        let (name, port) = (self.memory.context().name(), &self.port);
        format!("{name} port {}, MTU {}", port.number(), port.mtu_bytes())
    }

    /// Pages of the process's own, registered.
    pub(super) fn buffer(&self, len: usize, access: Access) -> Result<Buffer, VerbsError> {
        Buffer::new(&self.memory, len, access)
    }
}
