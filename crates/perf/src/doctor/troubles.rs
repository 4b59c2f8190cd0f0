//! What is wrong with what was found, and the remedy of each. Pure: facts in, troubles out.

use fastpath_base::config::shorten;
use fastpath_pcie::link::{Generation, Lanes, Link};
use serde::Serialize;

use super::Facts;
use super::devices::{Device, Interface, Pcie, Port};
use super::library::{Driver, Libraries};
use super::limits::Limits;
use fastpath_transport::verbs::split_port;

/// Something to know.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Trouble {
    pub severity: Severity,
    /// The device, port, file or limit it is about.
    pub subject: String,
    pub what: String,
    pub remedy: String,
}

/// Whether it keeps something from working.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// It does: this machine is not healthy.
    Trouble,
    /// It may be meant so, or costs speed alone.
    Note,
}

/// Bytes of locked memory with which a job of some ranks and messages of some megabytes gets on.
const ENOUGH_LOCKED: u64 = 64 << 20;
/// Bytes that the buffers of one rank with a few peers take.
const LEAST_LOCKED: u64 = 4 << 20;

/// Bytes in a packet on the bus from which its header costs less than a tenth, and of a read request from which waiting
/// for each answer does not count.
const ENOUGH_PAYLOAD: u32 = 256;
const ENOUGH_REQUEST: u32 = 512;

/// The largest packet of the verbs interface, in bytes, and what an Ethernet frame needs around it: GRH or
/// IP and UDP (48), BTH (12), the largest extended headers (16), ICRC (4).
const LARGEST_MTU: u32 = 4096;
const AROUND: u32 = 80;
/// The least around a payload: headers of IP (20) and UDP (8), BTH (12), ICRC (4).
const LEAST_AROUND: u32 = 44;

/// Everything that is wrong, the worst first.
pub(super) fn diagnose(facts: &Facts) -> Vec<Trouble> {
    let mut found = Found(Vec::new());
    found.look_at_library(&facts.libraries, &facts.devices);
    for adapter in &facts.undriven {
        let remedy = match &adapter.driver {
            None => "load its driver: `modprobe mlx5_ib` (or the module of its maker), see `dmesg`"
                .to_owned(),
            Some(driver) => format!(
                "{driver} makes no RDMA device of it: load the RDMA part too (`modprobe {driver}_ib` or {}), see `dmesg`",
                driver.replace("_core", "_ib")
            ),
        };
        let what = format!(
            "an InfiniBand adapter ({}:{}) without an RDMA device",
            adapter.vendor, adapter.device
        );
        found.trouble(&adapter.address, what, remedy);
    }
    for device in &facts.devices {
        found.look_at_device(device, &facts.libraries);
    }
    if let Some(wanted) = &facts.wanted {
        found.look_at_wish(wanted, &facts.devices);
    }
    if let Some(why) = &facts.refused {
        let remedy = "correct the variable, or unset it; `fastpath info` lists what is set";
        found.trouble("jobs that start from here end at once", why, remedy);
    }
    if !facts.devices.is_empty() {
        found.look_at_limits(&facts.limits);
    }
    found.0.sort_by_key(|t| t.severity == Severity::Note);
    found.0
}

struct Found(Vec<Trouble>);

impl Found {
    fn add(&mut self, severity: Severity, subject: &str, what: String, remedy: String) {
        self.0.push(Trouble {
            severity,
            subject: subject.to_owned(),
            what,
            remedy,
        });
    }

    fn trouble(&mut self, subject: &str, what: impl Into<String>, remedy: impl Into<String>) {
        self.add(Severity::Trouble, subject, what.into(), remedy.into());
    }

    fn note(&mut self, subject: &str, what: impl Into<String>, remedy: impl Into<String>) {
        self.add(Severity::Note, subject, what.into(), remedy.into());
    }

    fn look_at_library(&mut self, library: &Libraries, devices: &[Device]) {
        if let Some(problem) = &library.problem {
            let (what, remedy) = match problem.split_once("; ") {
                Some((what, remedy)) => (what, remedy),
                None => (problem.as_str(), "see what it says"),
            };
            match devices.is_empty() {
                // Nobody misses it.
                true => self.note("libibverbs", what, remedy),
                false => self.trouble("libibverbs", what, remedy),
            }
        }
        for (provider, files) in library.duplicates() {
            let files: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
            self.trouble(
                provider,
                format!("two copies of one provider: {}", files.join(" and ")),
                "keep one: name it by one file of /etc/libibverbs.d, and build programs against that one",
            );
        }
        // Where the library is not found, nobody knows the folder of its providers.
        let known = |d: &&Driver| d.file.is_none() && (d.by_path || library.path.is_some());
        for driver in library.drivers.iter().filter(known) {
            let subject = driver.named_in.display().to_string();
            let what = format!("names the provider {}, which is not there", driver.provider);
            // A distribution's file may name what another package brings.
            match driver.by_path {
                true => self.trouble(&subject, what, "correct the path, or remove the file"),
                false => self.note(
                    &subject,
                    what,
                    "install the provider if its adapter is here (Debian: ibverbs-providers)",
                ),
            }
        }
    }

    /// A name that is wrong: every job that is to use an adapter would fail.
    fn look_at_wish(&mut self, wanted: &str, devices: &[Device]) {
        let what = match split_port(wanted) {
            Err(error) => error.to_string(),
            Ok((name, port)) => match (devices.iter().find(|d| d.name == name), port) {
                (None, _) => format!("there is no RDMA device {}", shorten(name)),
                (Some(_), None) => return,
                (Some(device), Some(port)) => {
                    if device.ports.iter().any(|p| p.number == u32::from(port)) {
                        return;
                    }
                    format!("{name} has no port {port}")
                }
            },
        };
        let ports = devices.iter().flat_map(|d| {
            let name = |p: &Port| format!("{}:{}", d.name, p.number);
            d.ports.iter().map(name)
        });
        let remedy = match ports.collect::<Vec<_>>().join(", ") {
            there if there.is_empty() => "unset it: there is none".to_owned(),
            there => format!("unset it, or name one that is there: {there}"),
        };
        self.trouble(
            &format!("FASTPATH_DEVICE={}", shorten(wanted)),
            what,
            remedy,
        );
    }

    fn look_at_device(&mut self, device: &Device, library: &Libraries) {
        let name = &device.name;
        match &device.uverbs {
            None => self.trouble(
                name,
                "programs have no way into it (no /dev/infiniband/uverbs)",
                "modprobe ib_uverbs",
            ),
            Some(uverbs) => {
                if let Some(problem) = &uverbs.problem {
                    self.trouble(
                        name,
                        format!("{} cannot be opened: {problem}", uverbs.path),
                        "let this user read and write it (a udev rule, a group); in a container: --device=/dev/infiniband",
                    );
                } else {
                    self.look_at_provider(device, library);
                }
            }
        }
        if device.ports.iter().all(|port| port.state != "ACTIVE") {
            for port in &device.ports {
                self.look_at_idle_port(device, port);
            }
            if device.ports.is_empty() {
                self.trouble(name, "it has no ports", "see `dmesg`; update its firmware");
            }
        }
        for port in device.ports.iter().filter(|p| p.state == "ACTIVE") {
            self.look_at_port(device, port);
        }
        if let Some(pcie) = &device.pcie {
            self.look_at_bus(device, pcie);
            self.look_at_requests(device, pcie);
        }
    }

    fn look_at_provider(&mut self, device: &Device, library: &Libraries) {
        match &device.opened {
            // There is no library that could offer it: that is said once.
            None if library.path.is_none() => {}
            Some(Ok(())) => {}
            Some(Err(why)) => {
                self.trouble(&device.name, format!("it does not open: {why}"), "see `dmesg`");
            }
            None => self.trouble(
                &device.name,
                "the verbs library does not offer it: it found no provider for it",
                "install the provider (Debian: ibverbs-providers), of the version of libibverbs; a second rdma-core in LD_LIBRARY_PATH has its own",
            ),
        }
    }

    fn look_at_idle_port(&mut self, device: &Device, port: &Port) {
        let subject = format!("{} port {}", device.name, port.number);
        let what = format!("{} ({})", port.state, port.physical);
        let interface = port.interface.as_ref().map(|i| i.name.as_str());
        let remedy = match (port.state.as_str(), port.link_layer.as_str()) {
            ("INIT", "InfiniBand") => {
                "no subnet manager has seen it: start one (`opensm`) or see that the switch's runs"
                    .to_owned()
            }
            ("ARMED", _) => {
                "the subnet manager is about to activate it: wait, or see its log".to_owned()
            }
            (_, "Ethernet") => format!(
                "`ip link set {} up`; check cable and switch",
                interface.unwrap_or("INTERFACE")
            ),
            _ if port.physical == "Disabled" => {
                "it was switched off: `ibportstate`, or the firmware's set-up".to_owned()
            }
            _ => "check cable and switch".to_owned(),
        };
        self.trouble(&subject, what, remedy);
    }

    fn look_at_port(&mut self, device: &Device, port: &Port) {
        let subject = format!("{} port {}", device.name, port.number);
        if port.gids.is_empty() {
            let remedy = "give its network interface an address (`ip addr add`), or see that a subnet manager runs";
            self.trouble(
                &subject,
                "its GID table is empty: no peer can address it",
                remedy,
            );
        } else if port.link_layer == "Ethernet" && !port.gids.iter().any(|g| g.kind == "RoCE v2") {
            let remedy = "peers on other networks cannot be reached: enable RoCE v2 (`cma_roce_mode`, the firmware's set-up)";
            self.note(&subject, "no GID of RoCE v2", remedy);
        }
        if port.link_layer == "Ethernet"
            && let (Some(mtu), Some(interface)) = (port.mtu, &port.interface)
        {
            self.look_at_packets(&subject, mtu, interface);
            self.look_at_losses(&subject, interface);
        }
    }

    fn look_at_packets(&mut self, subject: &str, [active, most]: [u32; 2], interface: &Interface) {
        let most = most.min(LARGEST_MTU);
        let name = &interface.name;
        let of = interface
            .mtu
            .map_or(String::new(), |mtu| format!(" (MTU of {name}: {mtu})"));
        let raise = format!(
            "`ip link set {name} mtu {}` or more, on all hosts and switches",
            most + AROUND
        );
        match interface.mtu {
            Some(mtu) if active + LEAST_AROUND > mtu => self.trouble(
                subject,
                format!("packets carry {active} bytes, which do not fit through its interface{of}: messages that fill one are lost"),
                raise,
            ),
            // A loss of speed that one command mends.
            Some(mtu) if active < most && mtu >= most + AROUND => self.note(
                subject,
                format!("packets carry {active} bytes, where {most} would fit{of}"),
                format!("take the interface down and up: `ip link set {name} down; ip link set {name} up`"),
            ),
            _ if active < most => self.note(
                subject,
                format!("packets carry {active} bytes, where {most} would do{of}"),
                raise,
            ),
            _ => {}
        }
    }

    /// Only where the driver says both: what is not shown is not known.
    fn look_at_losses(&mut self, subject: &str, interface: &Interface) {
        if let (Some(paused), Some(slowed)) = (&interface.paused, &interface.slowed)
            && paused.is_empty()
            && slowed.is_empty()
        {
            let what = format!(
                "neither flow control by priority (PFC) nor congestion marks (ECN) on {}: where the network is full packets are lost, and sent again from the first lost one",
                interface.name
            );
            let remedy = "enable one of them here and on the switches: `mlnx_qos --pfc`, or ecn/roce_np/enable and ecn/roce_rp/enable of the interface";
            self.note(subject, what, remedy);
        }
    }

    fn look_at_bus(&mut self, device: &Device, pcie: &Pcie) {
        let (Some(now), Some(most)) = (
            raw_rate(&pcie.speed, pcie.lanes),
            raw_rate(&pcie.speed_most, pcie.lanes_most),
        ) else {
            return;
        };
        if now >= most {
            return;
        }
        let ports: f64 = device.ports.iter().filter_map(|p| port_rate(&p.rate)).sum();
        // An adapter in a slot of fewer lanes may be meant so, as long as the slot carries what the ports can.
        let severity = match now < ports {
            true => Severity::Trouble,
            false => Severity::Note,
        };
        let slot = pcie.slot.as_ref().map_or(String::new(), |slot| {
            format!("; the slot {} could {}", slot.address, slot.most)
        });
        let what = format!(
            "its bus runs at {} x{} ({now:.1} GB/s), of {} x{} ({most:.1} GB/s) that it could{slot}; its ports carry {ports:.1} GB/s",
            pcie.speed, pcie.lanes, pcie.speed_most, pcie.lanes_most
        );
        let remedy = match &pcie.slot {
            Some(slot) if slot.rate <= now => "another slot: this one can do no more",
            Some(_) => {
                "the slot could do more: seat the card anew, look at riser and contacts, and at the BIOS's speed of that slot"
            }
            None => {
                "another slot, or seat it anew; the BIOS's speed of that slot; in a virtual machine, look on its host"
            }
        };
        self.add(severity, &device.name, what, remedy.to_owned());
    }

    /// Packets and reads that are cut smaller than need be.
    fn look_at_requests(&mut self, device: &Device, pcie: &Pcie) {
        if let Some([is, can]) = pcie
            .payload
            .filter(|[is, can]| is < can && *is < ENOUGH_PAYLOAD)
        {
            let what = format!(
                "its writes to memory carry {is} bytes, of {can} that it could send (MaxPayload)"
            );
            let remedy = "the boot option pci=pcie_bus_perf, or the BIOS; a port on the way may allow no more: `fastpath explain device` says which";
            self.note(&device.name, what, remedy);
        }
        if let Some(bytes) = pcie.read_request.filter(|bytes| *bytes < ENOUGH_REQUEST) {
            let what = format!("one read of memory asks for {bytes} bytes at most (MaxReadReq)");
            let remedy = format!(
                "`setpci -s {} CAP_EXP+8.w=2000:7000` asks for 512; or the BIOS",
                pcie.address
            );
            self.note(&device.name, what, remedy);
        }
    }

    fn look_at_limits(&mut self, limits: &Limits) {
        let Some(locked) = limits.locked.filter(|_| !limits.privileged) else {
            return;
        };
        if locked >= ENOUGH_LOCKED {
            return;
        }
        let remedy = match limits.locked_most {
            Some(most) if most < ENOUGH_LOCKED => {
                "`* - memlock unlimited` in /etc/security/limits.d, LimitMEMLOCK=infinity for a service, --ulimit memlock=-1 for a container"
            }
            _ => "`ulimit -l unlimited` before the job starts (the hard limit allows it)",
        };
        let limit = format!("{} KiB of memory may be locked", locked >> 10);
        if locked < LEAST_LOCKED {
            let what =
                format!("{limit}: too little for the buffers of a rank that uses an adapter");
            return self.trouble("locked memory", what, remedy);
        }
        let what = format!(
            "{limit}: that may be too little for many peers, and for long messages without copies"
        );
        self.note("locked memory", what, remedy);
    }
}

/// Gigabytes (10^9) a second each way; None for a speed that is not a generation's.
fn raw_rate(speed: &str, lanes: u32) -> Option<f64> {
    let number: f64 = speed.split_whitespace().next()?.parse().ok()?;
    let lanes = Lanes::try_from(lanes).ok()?;
    let link = Link::new(Generation::of_speed(number)?, lanes);
    Some(link.raw().bytes_per_s() / 1e9)
}

/// Gigabytes (10^9) a second of `100 Gb/sec (4X EDR)`.
fn port_rate(rate: &str) -> Option<f64> {
    let (number, unit) = rate.split_once(' ')?;
    unit.starts_with("Gb/sec").then_some(())?;
    Some(number.parse::<f64>().ok()? / 8.0)
}
