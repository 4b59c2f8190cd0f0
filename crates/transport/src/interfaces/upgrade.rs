//! Pairs that begin with datagrams and get a connection when they talk much.

use super::Interfaces;
use crate::adapter::Adapter;
use crate::adapter::upgrade::{Refusal, Rule, UpgradeIface};
use crate::lane::Lane;

impl Interfaces {
    fn upgrade(&self) -> Option<&UpgradeIface> {
        match &self.adapter {
            Some((Adapter::Upgrade(iface), _)) => Some(iface),
            _ => None,
        }
    }

    pub(super) fn upgrade_mut(&mut self) -> Option<&mut UpgradeIface> {
        match &mut self.adapter {
            Some((Adapter::Upgrade(iface), _)) => Some(iface),
            _ => None,
        }
    }

    /// When pairs get connections, where they do.
    pub fn upgrade_rule(&self) -> Option<Rule> {
        self.upgrade().map(UpgradeIface::rule)
    }

    /// Sets when pairs get connections. Before the first lane is made.
    pub fn set_upgrade_rule(&mut self, rule: Rule) {
        if let Some(iface) = self.upgrade_mut() {
            iface.set_rule(rule);
        }
    }

    /// A peer that has become worth a connection; each is told of once.
    pub fn take_upgrade_request(&mut self) -> Option<u32> {
        self.upgrade_mut()?.take_upgrade_request()
    }

    /// Whether lanes have become connections since this was last asked.
    pub fn take_upgraded(&mut self) -> bool {
        self.upgrade_mut().is_some_and(UpgradeIface::take_news)
    }

    /// Makes this end of a connection for a lane that has none.
    ///
    /// # Errors
    /// It stays with datagrams.
    pub fn prepare_upgrade(&self, lane: &mut Lane) -> Result<(), Refusal> {
        match (self.upgrade(), lane) {
            (Some(_), Lane::Upgrade(endpoint)) if endpoint.is_upgrading() => Ok(()),
            (Some(iface), Lane::Upgrade(endpoint)) => iface.prepare(endpoint),
            _ => Err(Refusal::Failed("no lane that could".to_owned())),
        }
    }
}

impl Lane {
    /// Leaves datagrams behind where nothing goes by them any more.
    pub(crate) fn settle_upgrade(&mut self) {
        let Lane::Upgrade(endpoint) = self else {
            return;
        };
        if !endpoint.has_upgraded() {
            return;
        }
        if let Lane::Upgrade(endpoint) = std::mem::replace(self, Lane::Unconnected)
            && let Some(connection) = endpoint.into_connection()
        {
            *self = Lane::Rc(connection);
        }
    }
}
