//! Diagnostics with remedies (`data/diagnostics.toml`). Pure functions of the facts.

use std::collections::BTreeMap;

use fastpath_base::config::shorten;
use fastpath_pcie::link::{Generation, Lanes, Link};
use fastpath_report::data::{Values, fill, table, values};
use fastpath_transport::verbs::split_port;
use serde::{Deserialize, Serialize};

use super::Facts;
use super::devices::{Device, DriverlessDevice, Interface, Pcie, PcieSlot, PortFacts, Uverbs};
use super::library::{Driver, Libraries};
use super::limits::Limits;

#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Diagnostic {
    pub severity: Severity,
    pub subject: String,
    pub what: String,
    pub remedy: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// The diagnostic prevents operation: the machine is not healthy.
    Trouble,
    /// The cause may be intended, or only reduces speed.
    Note,
}

/// Locked memory, in bytes, that suffices for a job of a few ranks with messages of a few megabytes.
const ENOUGH_LOCKED: u64 = 64 << 20;
/// Size of the buffers of one rank with a few peers, in bytes.
const LEAST_LOCKED: u64 = 4 << 20;

/// Smallest payload of a bus packet, in bytes, whose header costs less than a tenth. Smallest read request, in bytes,
/// at which the latency of answers does not matter.
const ENOUGH_PAYLOAD: u32 = 256;
const ENOUGH_REQUEST: u32 = 512;

/// Largest MTU of the verbs interface, and the headers in an Ethernet frame, in bytes: GRH or IP and UDP (48), BTH
/// (12), the largest extended headers (16), ICRC (4).
const LARGEST_MTU: u32 = 4096;
const AROUND: u32 = 80;
/// Smallest headers around a payload, in bytes: IP (20), UDP (8), BTH (12), ICRC (4).
const LEAST_AROUND: u32 = 44;

#[derive(Deserialize)]
struct DiagnosticText {
    severity: Severity,
    what: String,
    remedy: String,
}

table!(SAYINGS: BTreeMap<String, DiagnosticText> = "diagnostics.toml");

pub(super) fn diagnose(facts: &Facts) -> Vec<Diagnostic> {
    let mut found = Diagnostics::default();
    found.look_at_library(&facts.libraries, &facts.devices);
    for DriverlessDevice { address, vendor, device, driver } in &facts.undriven {
        match driver {
            None => found.add("undriven", address, values!(vendor, device)),
            Some(driver) => {
                let other = driver.replace("_core", "_ib");
                found.add("undriven-half", address, values!(vendor, device, driver, other));
            }
        }
    }
    for device in &facts.devices {
        found.look_at_device(device, &facts.libraries);
    }
    if let Some(wanted) = &facts.wanted {
        found.look_at_wanted(wanted, &facts.devices);
    }
    if let Some(why) = &facts.refused {
        found.add("refused", "jobs that start on this host end at once", values!(why));
    }
    // A host without a network may be intended. A variable that excludes every network is an error.
    let problem = facts.network.problem.as_ref();
    if let Some(why) = problem.filter(|why| why.contains("FASTPATH_")) {
        found.add(
            "refused",
            "jobs on several hosts and connected jobs cannot start on this host",
            values!(why),
        );
    }
    if !facts.devices.is_empty() {
        found.look_at_limits(&facts.limits);
    }
    found.list()
}

#[derive(Default)]
pub(super) struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    pub(super) fn list(mut self) -> Vec<Diagnostic> {
        self.0.sort_by_key(|t| t.severity == Severity::Note);
        self.0
    }

    /// Adds the diagnostic with this name in the table.
    pub(super) fn add(&mut self, name: &str, subject: &str, values: Values) {
        self.add_as(SAYINGS[name].severity, name, subject, values);
    }

    fn add_as(&mut self, severity: Severity, name: &str, subject: &str, values: Values) {
        let saying = &SAYINGS[name];
        self.0.push(Diagnostic {
            severity,
            subject: subject.to_owned(),
            what: fill(&saying.what, values),
            remedy: fill(&saying.remedy, values),
        });
    }

    fn look_at_library(&mut self, library: &Libraries, devices: &[Device]) {
        if let Some(problem) = &library.problem {
            let unnamed = "correct the problem that the diagnostic describes, then run `fastpath \
                           doctor` again";
            let (what, remedy) = problem.split_once("; ").unwrap_or((problem, unnamed));
            // Without a device the library is not needed.
            let severity = if devices.is_empty() { Severity::Note } else { Severity::Trouble };
            self.add_as(severity, "library", "libibverbs", values!(what, remedy));
        }
        for (provider, files) in library.duplicates() {
            let files: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
            self.add("copies", provider, values!(files = files.join(" and ")));
        }
        // Without the library, the folder of its providers is unknown.
        let known = |d: &&Driver| d.file.is_none() && (d.by_path || library.path.is_some());
        for driver in library.drivers.iter().filter(known) {
            // A distribution's file may name a provider of another package, which need not be installed.
            let name = if driver.by_path { "provider-path" } else { "provider" };
            let subject = driver.named_in.display().to_string();
            self.add(name, &subject, values!(provider = driver.provider));
        }
    }

    fn look_at_wanted(&mut self, wanted: &str, devices: &[Device]) {
        let has = |d: &Device, port: u8| d.ports.iter().any(|p| p.number == u32::from(port));
        let what = match split_port(wanted) {
            Err(error) => error.to_string(),
            Ok((name, port)) => match (devices.iter().find(|d| d.name == name), port) {
                (None, _) => format!("the host has no RDMA device {}", shorten(name)),
                (Some(device), Some(port)) if !has(device, port) => {
                    format!("{name} has no port {port}")
                }
                _ => return,
            },
        };
        let name = |d: &Device, p: &PortFacts| format!("{}:{}", d.name, p.number);
        let ports = devices.iter().flat_map(|d| d.ports.iter().map(move |p| name(d, p)));
        let remedy = match ports.collect::<Vec<_>>().join(", ") {
            there if there.is_empty() => {
                "unset FASTPATH_DEVICE; the host has no RDMA device".to_owned()
            }
            there => format!("unset FASTPATH_DEVICE, or set it to one of {there}"),
        };
        let subject = format!("FASTPATH_DEVICE={}", shorten(wanted));
        self.add("wanted", &subject, values!(what, remedy));
    }

    fn look_at_device(&mut self, device: &Device, library: &Libraries) {
        let name = &device.name;
        match &device.uverbs {
            None => self.add("no-way", name, &[]),
            Some(Uverbs { path, problem: Some(problem) }) => {
                self.add("closed", name, values!(path, problem));
            }
            Some(_) => match &device.opened {
                Some(Err(why)) => self.add("not-opened", name, values!(why)),
                // A missing library is reported once.
                None if library.path.is_some() => self.add("not-offered", name, &[]),
                _ => {}
            },
        }
        let (active, idle): (Vec<&PortFacts>, Vec<&PortFacts>) =
            device.ports.iter().partition(|port| port.state == "ACTIVE");
        if device.ports.is_empty() {
            self.add("no-ports", name, &[]);
        }
        for port in idle.into_iter().filter(|_| active.is_empty()) {
            self.look_at_idle_port(device, port);
        }
        for port in active {
            self.look_at_port(device, port);
        }
        if let Some(pcie) = &device.pcie {
            self.look_at_bus(device, pcie);
            self.look_at_requests(device, pcie);
        }
    }

    fn look_at_idle_port(&mut self, device: &Device, port: &PortFacts) {
        let subject = format!("{} port {}", device.name, port.number);
        let state = format!("{} ({})", port.state, port.physical);
        let interface = port.interface.as_ref().map_or("INTERFACE", |i| i.name.as_str());
        let name = match (port.state.as_str(), port.link_layer.as_str()) {
            ("INIT", "InfiniBand") => "idle-init",
            ("ARMED", _) => "idle-armed",
            (_, "Ethernet") => "idle-ethernet",
            _ if port.physical == "Disabled" => "idle-disabled",
            _ => "idle",
        };
        self.add(name, &subject, values!(state, interface));
    }

    fn look_at_port(&mut self, device: &Device, port: &PortFacts) {
        let subject = format!("{} port {}", device.name, port.number);
        let is_ethernet = port.link_layer == "Ethernet";
        if port.gids.is_empty() {
            self.add("no-gids", &subject, &[]);
        } else if is_ethernet && !port.gids.iter().any(|g| g.kind == "RoCE v2") {
            self.add("no-roce-2", &subject, &[]);
        }
        if let (true, Some(mtu), Some(interface)) = (is_ethernet, port.mtu, &port.interface) {
            self.look_at_packets(&subject, mtu, interface);
            self.look_at_losses(&subject, interface);
        }
    }

    fn look_at_packets(&mut self, subject: &str, [active, most]: [u32; 2], interface: &Interface) {
        let (name, most) = (&interface.name, most.min(LARGEST_MTU));
        let enough = most + AROUND;
        let said = match interface.mtu {
            Some(mtu) if active + LEAST_AROUND > mtu => "packets-too-large",
            // The interface allows a larger MTU than the port uses: a loss of speed that one command fixes.
            Some(mtu) if active < most && mtu >= enough => "packets-stale",
            _ if active < most => "packets-small",
            _ => return,
        };
        let mtu = interface.mtu.map(|mtu| format!(" (MTU of {name}: {mtu})"));
        let mtu = mtu.unwrap_or_default();
        self.add(said, subject, values!(active, most, mtu, name, enough));
    }

    fn look_at_losses(&mut self, subject: &str, interface: &Interface) {
        let is_empty = |list: &Option<Vec<u8>>| list.as_ref().is_some_and(Vec::is_empty);
        if is_empty(&interface.paused) && is_empty(&interface.slowed) {
            self.add("losses", subject, values!(name = interface.name));
        }
    }

    fn look_at_bus(&mut self, device: &Device, pcie: &Pcie) {
        let rates =
            raw_rate(&pcie.speed, pcie.lanes).zip(raw_rate(&pcie.speed_most, pcie.lanes_most));
        let Some((now, most)) = rates.filter(|(now, most)| now < most) else {
            return;
        };
        let ports: f64 = device.ports.iter().filter_map(|p| port_rate(&p.rate)).sum();
        // An adapter in a slot with fewer lanes may be intended, if the slot carries the rate of the ports.
        let severity = if now < ports { Severity::Trouble } else { Severity::Note };
        let could = |slot: &PcieSlot| format!(", its slot {} supports {}", slot.address, slot.most);
        let remedy = match &pcie.slot {
            Some(slot) if slot.rate <= now => {
                "move the card to a slot with more lanes or a higher speed"
            }
            Some(_) => {
                "reseat the card; check riser, contacts, and the speed of the slot in the BIOS"
            }
            None => {
                "reseat the card or use another slot; check the speed of the slot in the BIOS; in \
                 a virtual machine, check its host"
            }
        };
        let [now, most, ports] = [now, most, ports].map(|rate| format!("{rate:.1}"));
        let values: Values = values!(
            is = format!("{} x{}", pcie.speed, pcie.lanes),
            now,
            could = format!("{} x{}", pcie.speed_most, pcie.lanes_most),
            most,
            slot = pcie.slot.as_ref().map(could).unwrap_or_default(),
            ports,
            remedy
        );
        self.add_as(severity, "bus", &device.name, values);
    }

    fn look_at_requests(&mut self, device: &Device, pcie: &Pcie) {
        if let Some([is, can]) = pcie.payload.filter(|[is, can]| is < can && *is < ENOUGH_PAYLOAD) {
            self.add("payload", &device.name, values!(is, can));
        }
        if let Some(bytes) = pcie.read_request.filter(|bytes| *bytes < ENOUGH_REQUEST) {
            self.add("requests", &device.name, values!(bytes, address = pcie.address));
        }
    }

    fn look_at_limits(&mut self, limits: &Limits) {
        let locked = limits.locked.filter(|n| !limits.privileged && *n < ENOUGH_LOCKED);
        let Some(locked) = locked else {
            return;
        };
        let remedy = match limits.locked_most {
            Some(most) if most < ENOUGH_LOCKED => {
                "set `* - memlock unlimited` in /etc/security/limits.d; for a service, \
                 LimitMEMLOCK=infinity; for a container, --ulimit memlock=-1"
            }
            _ => "run `ulimit -l unlimited` before the job (the hard limit allows it)",
        };
        let name = if locked < LEAST_LOCKED { "locked-too-little" } else { "locked-little" };
        self.add(name, "locked memory", values!(kib = locked >> 10, remedy));
    }
}

/// Raw rate each way, in gigabytes (10^9) per second; None for an unknown speed.
fn raw_rate(speed: &str, lanes: u32) -> Option<f64> {
    let number: f64 = speed.split_whitespace().next()?.parse().ok()?;
    let lanes = Lanes::try_from(lanes).ok()?;
    let link = Link::new(Generation::of_speed(number)?, lanes);
    Some(link.raw().bytes_per_s() / 1e9)
}

/// Rate of `100 Gb/sec (4X EDR)`, in gigabytes (10^9) per second.
fn port_rate(rate: &str) -> Option<f64> {
    let (number, unit) = rate.split_once(' ')?;
    unit.starts_with("Gb/sec").then_some(())?;
    Some(number.parse::<f64>().ok()? / 8.0)
}
