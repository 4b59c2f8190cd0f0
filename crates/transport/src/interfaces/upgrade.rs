//! Pairs that start with datagrams and upgrade to a connection.

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

    /// Rule for upgrades; `None` if pairs do not upgrade.
    pub fn upgrade_rule(&self) -> Option<Rule> {
        self.upgrade().map(UpgradeIface::rule)
    }

    /// Sets the rule for upgrades. Call it before the first lane is created.
    pub fn set_upgrade_rule(&mut self, rule: Rule) {
        if let Some(iface) = self.upgrade_mut() {
            iface.set_rule(rule);
        }
    }

    /// Takes a peer whose connection is now worth its cost; `None` if there is none. Each peer is returned once.
    pub fn take_upgrade_request(&mut self) -> Option<u32> {
        self.upgrade_mut()?.take_upgrade_request()
    }

    /// Whether lanes have upgraded since the last call.
    pub fn take_upgraded(&mut self) -> bool {
        self.upgrade_mut().is_some_and(UpgradeIface::take_news)
    }

    /// Creates this end of a connection for a lane that has no connection.
    ///
    /// # Errors
    /// The cause. The lane continues with datagrams.
    pub fn prepare_upgrade(&self, lane: &mut Lane) -> Result<(), Refusal> {
        match (self.upgrade(), lane) {
            (Some(_), Lane::Upgrade(endpoint)) if endpoint.is_upgrading() => Ok(()),
            (Some(iface), Lane::Upgrade(endpoint)) => iface.prepare(endpoint),
            _ => Err(Refusal::Failed("the lane cannot be upgraded".to_owned())),
        }
    }
}

impl Lane {
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
