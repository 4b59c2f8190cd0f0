//! Pairs that begin with datagrams and get a connection when they talk much.

use super::Interfaces;
use crate::adapter::Adapter;
use crate::contract::Address;
use crate::lane::Lane;
use crate::rising::{Refusal, RisingIface, Rule};

impl Interfaces {
    fn rising(&self) -> Option<&RisingIface> {
        match &self.adapter {
            Some((Adapter::Rising(iface), _)) => Some(iface),
            _ => None,
        }
    }

    pub(super) fn rising_mut(&mut self) -> Option<&mut RisingIface> {
        match &mut self.adapter {
            Some((Adapter::Rising(iface), _)) => Some(iface),
            _ => None,
        }
    }

    /// When pairs get connections, where they do.
    pub fn rise_rule(&self) -> Option<Rule> {
        self.rising().map(RisingIface::rule)
    }

    /// Sets when pairs get connections. Before the first lane is made.
    pub fn set_rise_rule(&mut self, rule: Rule) {
        if let Some(iface) = self.rising_mut() {
            iface.set_rule(rule);
        }
    }

    /// A peer that has become worth a connection; each is told of once.
    pub fn take_wish(&mut self) -> Option<u32> {
        self.rising_mut()?.take_wish()
    }

    /// Whether lanes have become connections since this was last asked.
    pub fn take_risen(&mut self) -> bool {
        self.rising_mut().is_some_and(RisingIface::take_news)
    }

    /// Makes this end of a connection for a lane that has none.
    ///
    /// # Errors
    /// It stays with datagrams.
    pub fn prepare_rise(&self, lane: &mut Lane) -> Result<(), Refusal> {
        match (self.rising(), lane) {
            (Some(_), Lane::Rising(endpoint)) if endpoint.is_rising() => Ok(()),
            (Some(iface), Lane::Rising(endpoint)) => iface.prepare(endpoint),
            _ => Err(Refusal::Failed("no lane that could".to_owned())),
        }
    }
}

impl Lane {
    /// Where the peer finds this end of a connection that is being made.
    pub fn rise_address(&self) -> Address {
        match self {
            Lane::Rising(endpoint) => endpoint.rising_address(),
            _ => Address::default(),
        }
    }

    /// Opens the connection to the peer's end of it; false where it leads nowhere.
    pub fn open_rise(&mut self, address: &Address) -> bool {
        match self {
            Lane::Rising(endpoint) => endpoint.open_connection(address),
            _ => false,
        }
    }

    /// The peer's end of the connection is open.
    pub fn finish_rise(&mut self) {
        if let Lane::Rising(endpoint) = self {
            endpoint.use_connection();
        }
    }

    /// There will be no connection.
    pub fn give_up_rise(&mut self) {
        if let Lane::Rising(endpoint) = self {
            endpoint.give_up_connection();
        }
    }

    /// Leaves datagrams behind where nothing goes by them any more.
    pub(crate) fn settle_rise(&mut self) {
        let Lane::Rising(endpoint) = self else {
            return;
        };
        if !endpoint.has_risen() {
            return;
        }
        if let Lane::Rising(endpoint) = std::mem::replace(self, Lane::Unconnected)
            && let Some(connection) = endpoint.into_connection()
        {
            *self = Lane::Rc(connection);
        }
    }
}
