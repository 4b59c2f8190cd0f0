//! RDMA adapters: one core, two ways to be reliable, and the change from one to the other.
//!
//! | file | holds |
//! |---|---|
//! | `rc/` | reliable connections: the adapter sends again what is lost |
//! | `ud/` | datagrams: the library does (`crate::reliable`) |
//! | `upgrade/` | pairs that begin with datagrams and get a connection when they talk much |
//! | `port` | the port that an interface uses, its memory, what happens to it |
//! | `send_buffers`, `send_queue` | send buffers; sends posted, done, and to be reported |
//! | `receive_buffers` | receive buffers, and which of them are posted |
//! | `shared`, `table`, `stage` | what interface and endpoints share; the connections of an interface; where one stands |
//! | `wire` | headers and addresses as they travel |
//!
//! This file has the transports as those see them who only open, progress and report them.

mod counts;
mod port;
pub mod rc;
mod receive_buffers;
mod send_buffers;
mod send_queue;
mod shared;
mod stage;
mod table;
pub mod ud;
pub mod upgrade;
mod wire;

pub use counts::Counts;

use crate::lane::Lane;
use crate::verbs::inline::Overrides;
use crate::verbs::{self, DeviceContext, VerbsError};
use fastpath_base::sync::AtomicU32;
use fastpath_bootstrap::job::Job;
use fastpath_bootstrap::segment::RankPage;
use port::Port;
use rc::RcIface;
use std::sync::Arc;
use std::time::Duration;
use ud::{RankAddresses, UdIface};
use upgrade::UpgradeIface;

/// The transports over adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdapterTransport {
    /// Reliable connections.
    Rc,
    /// Datagrams.
    Ud,
    /// Datagrams, and connections for pairs that talk much.
    Upgrading,
}

impl AdapterTransport {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            AdapterTransport::Rc => "rc",
            AdapterTransport::Ud => "ud",
            AdapterTransport::Upgrading => "ud and rc",
        }
    }

    /// The transports, as `FASTPATH_TRANSPORTS` lists them; the one that a pair begins with first.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            AdapterTransport::Rc => &["rc"],
            AdapterTransport::Ud => &["ud"],
            AdapterTransport::Upgrading => &["ud", "rc"],
        }
    }

    /// What [`Lane::max_single`] comes to say of a pair that talks much.
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

/// Words in memory by which a peer is known beside what comes of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PeerWords {
    /// Says whether it has left the job.
    pub state: Option<&'static AtomicU32>,
    /// Grows while it looks for arrivals.
    pub polls: Option<&'static AtomicU32>,
}

impl PeerWords {
    /// Those of a rank of the same memory.
    pub fn on_page(page: &'static RankPage) -> Self {
        PeerWords { state: Some(&page.state), polls: Some(&page.polls) }
    }
}

/// An adapter's port, as one of the transports uses it.
pub(crate) enum Adapter {
    /// By reliable connections.
    Rc(RcIface),
    /// By datagrams.
    Ud(UdIface, RankAddresses),
    /// By both.
    Upgrade(Box<UpgradeIface>),
}

impl Adapter {
    /// A device's port: `port`, or else its first active one. `inline`: how much inline data to ask for. `job`: whose
    /// rank it is for.
    ///
    /// # Errors
    /// As [`RcIface::new`] and [`UdIface::new`].
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

    /// Which transport it is.
    pub fn by(&self) -> AdapterTransport {
        match self {
            Adapter::Rc(_) => AdapterTransport::Rc,
            Adapter::Ud(..) => AdapterTransport::Ud,
            Adapter::Upgrade(_) => AdapterTransport::Upgrading,
        }
    }

    /// A lane to a peer, not connected. `words`: what is known of the peer.
    ///
    /// # Errors
    /// The device has no more of what it needs.
    pub fn make_lane(&self, peer: u32, words: PeerWords) -> Result<Lane, VerbsError> {
        let PeerWords { state, polls } = words;
        let mut lane = match self {
            Adapter::Rc(iface) => Lane::Rc(Box::new(iface.endpoint(state)?)),
            Adapter::Ud(iface, _) => Lane::Ud(Box::new(iface.endpoint(state)?)),
            Adapter::Upgrade(iface) => Lane::Upgrade(Box::new(iface.endpoint(peer, state)?)),
        };
        match (&mut lane, polls) {
            (Lane::Ud(endpoint), Some(polls)) => endpoint.watch_polls(polls),
            (Lane::Upgrade(endpoint), Some(polls)) => endpoint.datagrams().watch_polls(polls),
            _ => {}
        }
        Ok(lane)
    }

    /// Handles what has arrived and what is done; says whether anything was. `connecting` and `wake`: see
    /// [`UpgradeIface::progress`].
    pub fn progress(&mut self, connecting: bool, wake: impl Fn() + Send + 'static) -> bool {
        match self {
            Adapter::Rc(iface) => iface.progress(),
            Adapter::Ud(iface, _) => iface.progress(),
            Adapter::Upgrade(iface) => iface.progress(connecting, wake),
        }
    }

    /// As [`RcIface::arm`].
    pub fn arm(&mut self, wake: impl Fn() + Copy + Send + 'static) -> Duration {
        match self {
            Adapter::Rc(iface) => iface.arm(wake),
            Adapter::Ud(iface, _) => iface.arm(wake),
            Adapter::Upgrade(iface) => iface.arm(wake),
        }
    }

    /// The datagrams, and where they go, where there are any.
    pub fn datagrams(&mut self) -> Option<(&mut UdIface, &mut RankAddresses)> {
        match self {
            Adapter::Rc(_) => None,
            Adapter::Ud(iface, addresses) => Some((iface, addresses)),
            Adapter::Upgrade(iface) => Some(iface.datagrams()),
        }
    }

    /// Whether a wireup datagram has come.
    pub fn has_wireup_datagrams(&self) -> bool {
        match self {
            Adapter::Rc(_) => false,
            Adapter::Ud(iface, _) => iface.has_wireup_datagrams(),
            Adapter::Upgrade(iface) => iface.has_wireup_datagrams(),
        }
    }

    /// The connections, where there are any.
    pub fn connections(&self) -> Option<&RcIface> {
        match self {
            Adapter::Rc(iface) => Some(iface),
            Adapter::Ud(..) => None,
            Adapter::Upgrade(iface) => Some(iface.parts().1),
        }
    }

    fn with_port<T>(&self, act: impl FnOnce(&Port) -> T) -> T {
        match self {
            Adapter::Rc(iface) => iface.with_port(act),
            Adapter::Ud(iface, _) => iface.with_port(act),
            Adapter::Upgrade(iface) => iface.parts().0.with_port(act),
        }
    }

    /// Device, port, and how much inline data is asked for, for people.
    pub fn describe(&self) -> String {
        self.with_port(Port::describe)
    }

    /// What has been counted so far.
    pub fn counts(&self) -> Vec<Counts> {
        match self {
            Adapter::Rc(iface) => vec![Counts::of_rc(iface)],
            Adapter::Ud(iface, _) => vec![Counts::of_ud(&iface.counters())],
            Adapter::Upgrade(iface) => {
                let (ud, rc) = iface.parts();
                let pairs = Counts::of_pairs(&iface.counters());
                let (ud, rc) = (Counts::of_ud(&ud.counters()), Counts::of_rc(rc));
                vec![pairs, ud, rc]
            }
        }
    }

    /// Name of the device, and number of the port.
    pub fn port(&self) -> (String, u8) {
        self.with_port(Port::name)
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

/// Tries whether a transport has an adapter: that and its inline data, for people. Nothing stays open.
///
/// # Errors
/// For people: what is missing and what to do.
pub fn probe(
    by: AdapterTransport, device: Option<&str>, inline: &Overrides<'_>,
) -> Result<String, String> {
    let text = verbs::open_device(device, |context, port| {
        Ok(match by {
            AdapterTransport::Rc => open_rc(context, port, inline)?.with_port(Port::describe),
            AdapterTransport::Ud => open_ud(context, port, inline)?.with_port(Port::describe),
            AdapterTransport::Upgrading => {
                let ud = open_ud(context, port, inline)?;
                // Both at once: together they need more memory than each.
                open_rc(context, port, inline)?;
                ud.with_port(Port::describe)
            }
        })
    });
    text.map_err(|error| error.to_string())
}
