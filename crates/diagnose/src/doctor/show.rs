//! Text form of the results of `fastpath doctor` on one host.

use std::path::PathBuf;

use fastpath_report::document::Document;

use super::Examination;
use super::devices::{Device, Interface, Pcie, PortFacts};
use super::diagnostics::{Diagnostic, Severity};
use super::engines::{EngineFacts, EngineNetwork};
use super::library::Libraries;
use super::limits::Limits;

pub(super) fn describe(examination: &Examination) -> Document {
    let facts = &examination.facts;
    let mut said = Document::default();
    describe_diagnostics(&examination.diagnostics, examination.healthy, &mut said);
    if facts.devices.is_empty() {
        said.heading("devices");
        said.text("no RDMA device: messages use shared memory, and TCP between hosts");
    }
    for device in &facts.devices {
        describe_device(device, &mut said);
    }
    for adapter in &facts.undriven {
        said.heading(format!("adapter {} without an RDMA device", adapter.address));
    }
    describe_library(&facts.libraries, &mut said);
    describe_limits(&facts.limits, &mut said);
    describe_network(&facts.network, &mut said);
    describe_engines(&facts.engines, &mut said);
    said
}

pub(super) fn describe_diagnostics(diagnostics: &[Diagnostic], healthy: bool, said: &mut Document) {
    said.heading(if healthy { "healthy" } else { "not healthy" });
    for trouble in diagnostics {
        let mark = match trouble.severity {
            Severity::Trouble => "TROUBLE",
            Severity::Note => "note",
        };
        said.heading(format!("{mark}: {}: {}", trouble.subject, trouble.what));
        said.text(format!("remedy: {}", trouble.remedy));
    }
}

fn describe_device(device: &Device, said: &mut Document) {
    said.heading(format!("device {}", device.name));
    let known =
        [("driver", &device.driver), ("firmware", &device.firmware), ("board", &device.board)];
    for (name, value) in known {
        value.iter().for_each(|value| said.pair(name, value));
    }
    let bus = device.pcie.as_ref().map(describe_bus);
    said.pair("bus", bus.unwrap_or_else(|| "none (software device)".to_owned()));
    if let Some(pcie) = &device.pcie {
        describe_requests(pcie).into_iter().for_each(|text| said.pair("on the bus", text));
        let slot = pcie.slot.as_ref();
        slot.iter().for_each(|s| said.pair("slot", format!("{}, supports {}", s.address, s.most)));
    }
    said.pair("device file", device.uverbs.as_ref().map_or("none", |u| u.path.as_str()));
    device.ports.iter().for_each(|port| describe_port(port, said));
}

fn describe_bus(pcie: &Pcie) -> String {
    let node = pcie.node.filter(|n| *n >= 0);
    let node = node.map_or(String::new(), |n| format!(", NUMA node {n}"));
    let Pcie { address, speed, lanes, speed_most, lanes_most, .. } = pcie;
    format!("{address}: {speed} x{lanes} (supports {speed_most} x{lanes_most}){node}")
}

fn describe_requests(pcie: &Pcie) -> Option<String> {
    let payload = pcie.payload.map(|[is, can]| format!("packets of {is} B (supports {can} B)"));
    let request = pcie.read_request.map(|bytes| format!("reads of {bytes} B"));
    let parts: Vec<String> = [payload, request].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn describe_port(port: &PortFacts, said: &mut Document) {
    let mtu = |mtu: u32| format!(" (MTU {mtu} B)");
    let interface = |i: &Interface| format!(", {}{}", i.name, i.mtu.map_or(String::new(), mtu));
    let by = port.interface.as_ref().map_or(String::new(), interface);
    let PortFacts { number, state, physical, link_layer, rate, .. } = port;
    said.pair(format!("port {number}"), format!("{state} ({physical}), {link_layer}, {rate}{by}"));
    if let Some([active, most]) = port.mtu {
        said.pair("  packets", format!("{active} B of payload (at most {most} B)"));
    }
    let list = |priorities: &Vec<u8>| match priorities.as_slice() {
        [] => "priorities: none".to_owned(),
        some => {
            format!("priorities: {}", some.iter().map(u8::to_string).collect::<Vec<_>>().join(", "))
        }
    };
    if let Some(Interface { paused, slowed, .. }) = &port.interface {
        paused.iter().for_each(|p| said.pair("  paused (PFC)", list(p)));
        slowed.iter().for_each(|p| said.pair("  slowed (ECN)", list(p)));
    }
    for gid in &port.gids {
        let interface = gid.interface.as_deref().unwrap_or("");
        let text = format!("{} {} {interface}", gid.gid, gid.kind);
        said.pair(format!("  GID {}", gid.index), text);
    }
}

fn describe_library(library: &Libraries, said: &mut Document) {
    let show = |path: &PathBuf| path.display().to_string();
    said.heading(format!(
        "verbs library      {}",
        library.path.as_ref().map_or("none".to_owned(), show)
    ));
    for (name, files) in library.loaded.iter().filter(|(name, _)| *name != "ibverbs") {
        files.iter().for_each(|file| said.pair(format!("provider {name}"), show(file)));
    }
    let drivers = library.drivers.iter().map(|d| d.provider.as_str());
    let idle: Vec<&str> = drivers.filter(|name| !library.loaded.contains_key(*name)).collect();
    if !idle.is_empty() {
        said.pair("not loaded", idle.join(", "));
    }
}

fn describe_network(network: &EngineNetwork, said: &mut Document) {
    let ports = match network.ports.as_str() {
        "" => String::new(),
        ports => format!(", ports {ports}"),
    };
    said.heading(match &network.problem {
        None => format!("network            {}{ports}", network.addresses.join(", ")),
        Some(why) => format!("network            none: {why}"),
    });
}

fn describe_engines(engines: &[EngineFacts], said: &mut Document) {
    if engines.is_empty() {
        said.heading("engines            none: jobs run only on this host");
        said.text(
            "for jobs on several hosts, install Hydra (Debian: mpich), PRRTE, Slurm or Flux on \
             each host",
        );
    }
    for engine in engines {
        let version = engine.version.as_deref().unwrap_or("of unknown version");
        let program = engine.program.display();
        said.heading(format!("engine {:<11} {program} {version}", engine.name));
        said.pair("protocols", engine.protocols.join(", "));
        if let (false, Some(name)) = (engine.usable, engine.allocation) {
            said.pair("usable", format!("only in an allocation: {name} is not set"));
        }
    }
}

fn describe_limits(limits: &Limits, said: &mut Document) {
    let size =
        |bytes: Option<u64>| bytes.map_or("unlimited".to_owned(), |b| format!("{} KiB", b >> 10));
    let more = match limits.locked_most == limits.locked {
        true => "the hard limit is the same".to_owned(),
        false => format!("`ulimit -l` can raise the limit to {}", size(limits.locked_most)),
    };
    let privileged = match limits.privileged {
        true => "; this user is exempt from the limit",
        false => "",
    };
    let now = size(limits.locked);
    said.heading(format!("locked memory      {now} at most ({more}{privileged})"));
}
