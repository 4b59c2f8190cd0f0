//! The transports over RDMA adapters, as those who only open, progress and report them see them.

use crate::lane::Lane;
use crate::rc::{self, RcIface};
use crate::tcp;
use crate::ud::{self, UdIface};
use crate::upgrade::{self, UpgradeIface};
use crate::verbs::inline::Overrides;
use crate::verbs::{self, DeviceContext, VerbsError};
use fastpath_bootstrap::job::Job;
use fastpath_bootstrap::segment::RankPage;
use std::sync::Arc;
use std::time::Duration;

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

/// An adapter's port, as one of the transports uses it.
pub(crate) enum Adapter {
    /// By reliable connections.
    Rc(RcIface),
    /// By datagrams.
    Ud(UdIface),
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
        by: AdapterTransport,
        context: &Arc<DeviceContext>,
        port: Option<u8>,
        inline: &Overrides<'_>,
        job: &'static Job,
    ) -> Result<Self, VerbsError> {
        Ok(match by {
            AdapterTransport::Rc => Adapter::Rc(open_rc(context, port, inline)?),
            AdapterTransport::Ud => {
                let ud = open_ud(context, port, inline)?;
                ud.tell_polls(&job.own_page().polls);
                Adapter::Ud(ud)
            }
            AdapterTransport::Upgrading => {
                let (ud, rc) = (
                    open_ud(context, port, inline)?,
                    open_rc(context, port, inline)?,
                );
                ud.tell_polls(&job.own_page().polls);
                Adapter::Upgrade(Box::new(UpgradeIface::new(ud, rc, job)))
            }
        })
    }

    /// Which transport it is.
    pub fn by(&self) -> AdapterTransport {
        match self {
            Adapter::Rc(_) => AdapterTransport::Rc,
            Adapter::Ud(_) => AdapterTransport::Ud,
            Adapter::Upgrade(_) => AdapterTransport::Upgrading,
        }
    }

    /// A lane to a peer, not connected. `page` is the peer's, which says whether it has left the job.
    ///
    /// # Errors
    /// The device has no more of what it needs.
    pub fn make_lane(
        &self,
        peer: u32,
        page: Option<&'static RankPage>,
    ) -> Result<Lane, VerbsError> {
        let state = page.map(|page| &*page.state);
        let mut lane = match self {
            Adapter::Rc(iface) => Lane::Rc(Box::new(iface.endpoint(state)?)),
            Adapter::Ud(iface) => Lane::Ud(Box::new(iface.endpoint(state)?)),
            Adapter::Upgrade(iface) => Lane::Upgrade(Box::new(iface.endpoint(peer, state)?)),
        };
        match (&mut lane, page) {
            (Lane::Ud(endpoint), Some(page)) => endpoint.watch_polls(&page.polls),
            (Lane::Upgrade(endpoint), Some(page)) => endpoint.datagrams().watch_polls(&page.polls),
            _ => {}
        }
        Ok(lane)
    }

    /// Handles what has arrived and what is done; says whether anything was. `connecting` and `wake`: see
    /// [`UpgradeIface::progress`].
    pub fn progress(&mut self, connecting: bool, wake: impl Fn() + Send + 'static) -> bool {
        match self {
            Adapter::Rc(iface) => iface.progress(),
            Adapter::Ud(iface) => iface.progress(),
            Adapter::Upgrade(iface) => iface.progress(connecting, wake),
        }
    }

    /// As [`RcIface::arm`].
    pub fn arm(&mut self, wake: impl Fn() + Copy + Send + 'static) -> Duration {
        match self {
            Adapter::Rc(iface) => iface.arm(wake),
            Adapter::Ud(iface) => iface.arm(wake),
            Adapter::Upgrade(iface) => iface.arm(wake),
        }
    }

    /// The connections, where there are any.
    pub fn connections(&self) -> Option<&RcIface> {
        match self {
            Adapter::Rc(iface) => Some(iface),
            Adapter::Ud(_) => None,
            Adapter::Upgrade(iface) => Some(iface.parts().1),
        }
    }

    /// Device, port, and how much inline data is asked for, for people.
    pub fn describe(&self) -> String {
        let (port, (bytes, source)) = match self {
            Adapter::Rc(iface) => {
                let port = iface.with_domain(|domain| domain.describe());
                (port, iface.asked_inline())
            }
            Adapter::Ud(iface) => (iface.describe(), iface.asked_inline()),
            Adapter::Upgrade(iface) => {
                let (ud, _) = iface.parts();
                (ud.describe(), ud.asked_inline())
            }
        };
        format!("{port}, {bytes} bytes of inline data asked for ({source})")
    }

    /// What has been counted so far.
    pub fn counts(&self) -> Vec<Counts> {
        match self {
            Adapter::Rc(iface) => vec![Counts::of_rc(iface)],
            Adapter::Ud(iface) => vec![Counts::of_ud(&iface.counters())],
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
        match self {
            Adapter::Rc(iface) => iface.with_domain(|domain| domain.port_name()),
            Adapter::Ud(iface) => iface.port_name(),
            Adapter::Upgrade(iface) => iface.parts().0.port_name(),
        }
    }
}

/// What a transport has counted, for people and for programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Of which transport, or of the adapter's port.
    pub of: &'static str,
    /// One line.
    pub text: String,
    /// Each number with its name.
    pub numbers: Vec<(&'static str, u64)>,
}

/// What is said of a limit on locked memory that was met; nothing where it was not.
pub(crate) fn describe_refused(times: u64) -> String {
    match times {
        0 => String::new(),
        1 => "; memory for more buffers was refused once: it went on with fewer (`ulimit -l`)"
            .to_owned(),
        _ => format!(
            "; memory for more buffers was refused {times} times: it went on with fewer (`ulimit \
             -l`)"
        ),
    }
}

impl Counts {
    fn of_rc(iface: &RcIface) -> Self {
        let c = iface.counters();
        let (r, refusal) = iface.with_domain(|domain| {
            (
                domain.registrations.counts(),
                domain.registrations.refusal(),
            )
        });
        let kept = match refusal {
            None => format!("{} kept at the end", r.kept),
            Some(why) => format!("none of the program's own memory is kept ({why})"),
        };
        let text = format!(
            "{} {}, {} bytes of inline data granted; {} sends inline, {} from buffers; dropped: \
             {} violations; {} connections failed; registrations: {} made, \
             {} reused, {} dropped as their memory changed, {} for others, {kept}{}",
            c.connections,
            if c.connections == 1 {
                "queue pair"
            } else {
                "queue pairs"
            },
            c.granted,
            c.inline,
            c.copied,
            c.violations,
            c.failures,
            r.made,
            r.reused,
            r.unmapped,
            r.evicted,
            describe_refused(c.refused)
        );
        let numbers = vec![
            ("connections", c.connections),
            ("inline_granted", c.granted),
            ("inline", c.inline),
            ("copied", c.copied),
            ("receive_polls", c.recv_polls),
            ("violations", c.violations),
            ("failures", c.failures),
            ("buffers_refused", c.refused),
            ("registrations_made", r.made),
            ("registrations_reused", r.reused),
            ("registrations_changed", r.unmapped),
            ("registrations_evicted", r.evicted),
            ("registrations_kept", r.kept),
        ];
        Counts {
            of: "rc",
            text,
            numbers,
        }
    }

    fn of_ud(c: &ud::Counters) -> Self {
        let numbers = vec![
            ("connections", c.connections),
            ("inline_granted", c.granted),
            ("inline", c.inline),
            ("sent", c.sent),
            ("resent", c.resent),
            ("acks", c.acks),
            ("received", c.received),
            ("duplicates", c.duplicates),
            ("early", c.early),
            ("garbage", c.garbage),
            ("violations", c.violations),
            ("receive_errors", c.receive_errors),
            ("out_of_buffer", c.out_of_buffer),
            ("outages", c.outages),
            ("buffers_refused", c.refused),
            ("receive_polls", c.recv_polls),
            ("failures", c.failures),
        ];
        Counts {
            of: "ud",
            text: c.to_string(),
            numbers,
        }
    }

    /// What connections of the kernel's network have counted.
    pub(crate) fn of_tcp(c: &tcp::Counters) -> Self {
        let text = format!(
            "{} {}, {} made by the peer; {} calls that did not reach a peer; {} strangers",
            c.connections,
            if c.connections == 1 {
                "connection"
            } else {
                "connections"
            },
            c.accepted,
            c.failed,
            c.strangers
        );
        let numbers = vec![
            ("connections", c.connections),
            ("accepted", c.accepted),
            ("failed", c.failed),
            ("strangers", c.strangers),
        ];
        Counts {
            of: "tcp",
            text,
            numbers,
        }
    }

    fn of_pairs(c: &upgrade::Counters) -> Self {
        let text = format!(
            "{} of {} have a connection; without one: {} for the limit, {} that failed; dropped: \
             {} wireup datagrams of strangers",
            c.upgraded, c.pairs, c.limited, c.stayed, c.strangers
        );
        let numbers = vec![
            ("pairs", c.pairs),
            ("upgraded", c.upgraded),
            ("limited", c.limited),
            ("stayed", c.stayed),
            ("strangers", c.strangers),
            ("rests", c.rests),
        ];
        Counts {
            of: "pairs",
            text,
            numbers,
        }
    }

    /// What the kernel has counted of receive buffers that ran out.
    pub(crate) fn of_port(counter: &verbs::PortCounter) -> Self {
        let count = counter.since();
        Counts {
            of: "port",
            text: format!(
                "{} {count}, of all processes that use the adapter",
                counter.name
            ),
            numbers: vec![(counter.name, count)],
        }
    }
}

fn open_rc(
    context: &Arc<DeviceContext>,
    port: Option<u8>,
    inline: &Overrides<'_>,
) -> Result<RcIface, VerbsError> {
    let (inline, inline_source) = inline.settle(context);
    let settings = rc::Settings {
        inline,
        inline_source,
        ..rc::Settings::default()
    };
    RcIface::new(context, port, settings)
}

fn open_ud(
    context: &Arc<DeviceContext>,
    port: Option<u8>,
    inline: &Overrides<'_>,
) -> Result<UdIface, VerbsError> {
    let (inline, inline_source) = inline.settle(context);
    let settings = ud::Settings {
        inline,
        inline_source,
        ..ud::Settings::default()
    };
    UdIface::new(context, port, settings)
}

/// Tries whether a transport has an adapter: that and its inline data, for people. Nothing stays open.
///
/// # Errors
/// For people: what is missing and what to do.
pub fn probe(
    by: AdapterTransport,
    device: Option<&str>,
    inline: &Overrides<'_>,
) -> Result<String, String> {
    let text = verbs::open_device(device, |context, port| {
        Ok(match by {
            AdapterTransport::Rc => Adapter::Rc(open_rc(context, port, inline)?).describe(),
            AdapterTransport::Ud => Adapter::Ud(open_ud(context, port, inline)?).describe(),
            AdapterTransport::Upgrading => {
                let ud = open_ud(context, port, inline)?;
                // Both at once: together they need more memory than each.
                open_rc(context, port, inline)?;
                Adapter::Ud(ud).describe()
            }
        })
    });
    text.map_err(|error| error.to_string())
}
