//! RDMA adapters: shared parts, two transports, and the upgrade from one to the other.
//!
//! | file | holds |
//! |---|---|
//! | `rc/` | reliable connections: the adapter retransmits |
//! | `ud/` | datagrams: the library retransmits (`crate::reliable`) |
//! | `upgrade/` | pairs that start with datagrams and get a connection once it is worth its cost |
//! | `port` | the port of an interface, its memory and its events |
//! | `send_buffers`, `send_queue` | send buffers; posted, completed and signaled sends |
//! | `receive_buffers` | receive buffers, and which of them are posted |
//! | `shared`, `table`, `stage` | state shared by interface and endpoints; connection table; connection stage |
//! | `wire` | headers and addresses on the wire |
//!
//! This file lets other modules open, progress and describe these transports.

mod port;
pub mod rc;
mod receive_buffers;
mod send_buffers;
mod send_queue;
mod shared;
mod stage;
mod table;
#[cfg(test)]
pub(crate) mod testing;
pub mod ud;
pub mod upgrade;
mod wire;

use crate::verbs::inline::Overrides;
use crate::verbs::{self, DeviceContext, VerbsError};
use fastpath_base::sync::AtomicU32;
use fastpath_job::Job;
use fastpath_segment::RankPage;
use port::AdapterPort;
use rc::RcIface;
use std::sync::Arc;
use std::time::Duration;
use ud::{RankAddresses, UdIface};
use upgrade::UpgradeIface;

/// Transports over RDMA adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdapterTransport {
    /// Reliable connections.
    Rc,
    /// Datagrams.
    Ud,
    /// Datagrams at first; a pair gets a connection once that is worth its cost.
    Upgrading,
}

impl AdapterTransport {
    /// Name in messages.
    pub fn name(self) -> &'static str {
        match self {
            AdapterTransport::Rc => "rc",
            AdapterTransport::Ud => "ud",
            AdapterTransport::Upgrading => "ud and rc",
        }
    }

    /// Names in `FASTPATH_TRANSPORTS`. The first is that of the transport with which a pair starts.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            AdapterTransport::Rc => &["rc"],
            AdapterTransport::Ud => &["ud"],
            AdapterTransport::Upgrading => &["ud", "rc"],
        }
    }

    /// Value of [`crate::Lane::max_single`], in bytes, for a pair that exchanges many messages.
    pub fn max_single(self) -> usize {
        match self {
            AdapterTransport::Rc | AdapterTransport::Upgrading => rc::MAX_SINGLE,
            AdapterTransport::Ud => 0,
        }
    }
}

impl std::fmt::Display for AdapterTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Text about `times` failures to lock memory; empty if `times` is 0.
pub(crate) fn describe_refused(times: u64) -> String {
    match times {
        0 => String::new(),
        1 => {
            "; memory for more adapter buffers was refused once (to allow more, raise `ulimit -l`)"
                .to_owned()
        }
        _ => format!(
            "; memory for more adapter buffers was refused {times} times (to allow more, raise \
             `ulimit -l`)"
        ),
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PeerWords {
    /// Word with the state of the peer: awake, asleep, finished or dead. `None` if it is unknown.
    pub state: Option<&'static AtomicU32>,
    /// Counter of the peer's polls that found no datagram. `None` if the peer is on another node.
    pub polls: Option<&'static AtomicU32>,
}

impl PeerWords {
    /// Words on `page`, which is the page of a rank of the same node.
    pub fn on_page(page: &'static RankPage) -> Self {
        PeerWords { state: Some(&page.state), polls: Some(&page.polls) }
    }
}

pub(crate) enum Adapter {
    Rc(RcIface),
    Ud(UdIface, RankAddresses),
    Upgrade(Box<UpgradeIface>),
}

impl Adapter {
    pub fn new(
        by: AdapterTransport, context: &Arc<DeviceContext>, port: Option<u8>,
        inline: &Overrides<'_>, job: &'static Job,
    ) -> Result<Self, VerbsError> {
        Ok(match by {
            AdapterTransport::Rc => Adapter::Rc(open_rc(context, port, inline)?),
            AdapterTransport::Ud => {
                let mut ud = open_ud(context, port, inline)?;
                ud.tell_polls(&job.own_page().polls);
                let addresses = RankAddresses::open(&mut ud, job);
                Adapter::Ud(ud, addresses)
            }
            AdapterTransport::Upgrading => {
                let (ud, rc) = (open_ud(context, port, inline)?, open_rc(context, port, inline)?);
                ud.tell_polls(&job.own_page().polls);
                Adapter::Upgrade(Box::new(UpgradeIface::new(ud, rc, job)))
            }
        })
    }

    pub fn by(&self) -> AdapterTransport {
        match self {
            Adapter::Rc(_) => AdapterTransport::Rc,
            Adapter::Ud(..) => AdapterTransport::Ud,
            Adapter::Upgrade(_) => AdapterTransport::Upgrading,
        }
    }

    /// Processes arrivals and completions; returns whether there were any. [`UpgradeIface::progress`] explains
    /// `connecting` and `wake`.
    pub fn progress(&mut self, connecting: bool, wake: impl Fn() + Send + 'static) -> bool {
        match self {
            Adapter::Rc(iface) => iface.progress(),
            Adapter::Ud(iface, _) => iface.progress(),
            Adapter::Upgrade(iface) => iface.progress(connecting, wake),
        }
    }

    pub fn arm(&mut self, wake: impl Fn() + Copy + Send + 'static) -> Duration {
        match self {
            Adapter::Rc(iface) => iface.arm(wake),
            Adapter::Ud(iface, _) => iface.arm(wake),
            Adapter::Upgrade(iface) => iface.arm(wake),
        }
    }

    pub fn datagrams(&mut self) -> Option<(&mut UdIface, &mut RankAddresses)> {
        match self {
            Adapter::Rc(_) => None,
            Adapter::Ud(iface, addresses) => Some((iface, addresses)),
            Adapter::Upgrade(iface) => Some(iface.datagrams()),
        }
    }

    pub fn has_wireup_datagrams(&self) -> bool {
        match self {
            Adapter::Rc(_) => false,
            Adapter::Ud(iface, _) => iface.has_wireup_datagrams(),
            Adapter::Upgrade(iface) => iface.has_wireup_datagrams(),
        }
    }

    pub fn connections(&self) -> Option<&RcIface> {
        match self {
            Adapter::Rc(iface) => Some(iface),
            Adapter::Ud(..) => None,
            Adapter::Upgrade(iface) => Some(iface.parts().1),
        }
    }

    fn with_port<T>(&self, act: impl FnOnce(&AdapterPort) -> T) -> T {
        match self {
            Adapter::Rc(iface) => iface.with_port(act),
            Adapter::Ud(iface, _) => iface.with_port(act),
            Adapter::Upgrade(iface) => iface.parts().0.with_port(act),
        }
    }

    pub fn describe(&self) -> String {
        self.with_port(AdapterPort::describe)
    }

    pub fn port(&self) -> (String, u8) {
        self.with_port(AdapterPort::name)
    }
}

fn open_rc(
    context: &Arc<DeviceContext>, port: Option<u8>, inline: &Overrides<'_>,
) -> Result<RcIface, VerbsError> {
    let (inline, inline_source) = inline.settle(context);
    let settings = rc::Settings { inline, inline_source, ..rc::Settings::default() };
    RcIface::new(context, port, settings)
}

fn open_ud(
    context: &Arc<DeviceContext>, port: Option<u8>, inline: &Overrides<'_>,
) -> Result<UdIface, VerbsError> {
    let (inline, inline_source) = inline.settle(context);
    let settings = ud::Settings { inline, inline_source, ..ud::Settings::default() };
    UdIface::new(context, port, settings)
}

/// Tests whether transport `by` can open an adapter, and returns its description. Nothing stays open.
///
/// # Errors
/// Message with cause and remedy.
pub fn probe(
    by: AdapterTransport, device: Option<&str>, inline: &Overrides<'_>,
) -> Result<String, String> {
    let text = verbs::open_device(device, |context, port| {
        Ok(match by {
            AdapterTransport::Rc => {
                open_rc(context, port, inline)?.with_port(AdapterPort::describe)
            }
            AdapterTransport::Ud => {
                open_ud(context, port, inline)?.with_port(AdapterPort::describe)
            }
            AdapterTransport::Upgrading => {
                let ud = open_ud(context, port, inline)?;
                // Keep both transports open at the same time, because together they need more memory than each alone.
                open_rc(context, port, inline)?;
                ud.with_port(AdapterPort::describe)
            }
        })
    });
    text.map_err(|error| error.to_string())
}
