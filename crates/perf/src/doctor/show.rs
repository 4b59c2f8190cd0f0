//! The text form.

use std::io::{self, Write};

use super::Examination;
use super::devices::{Device, Pcie, Port};
use super::library::Libraries;
use super::limits::Limits;
use super::troubles::Severity;

/// Prints it, troubles last, where one looks.
pub(super) fn print(out: &mut impl Write, examination: &Examination) -> io::Result<()> {
    let facts = &examination.facts;
    if facts.devices.is_empty() {
        writeln!(
            out,
            "no RDMA device: messages go through shared memory alone"
        )?;
    }
    for device in &facts.devices {
        print_device(out, device)?;
    }
    for adapter in &facts.undriven {
        writeln!(out, "adapter {} without an RDMA device", adapter.address)?;
    }
    print_library(out, &facts.libraries)?;
    print_limits(out, &facts.limits)?;
    writeln!(out)?;
    for trouble in &examination.troubles {
        let mark = match trouble.severity {
            Severity::Trouble => "TROUBLE",
            Severity::Note => "note",
        };
        writeln!(out, "{mark}: {}: {}", trouble.subject, trouble.what)?;
        writeln!(out, "  remedy: {}", trouble.remedy)?;
    }
    let verdict = if examination.healthy {
        "healthy"
    } else {
        "not healthy"
    };
    writeln!(out, "{verdict}")
}

fn print_device(out: &mut impl Write, device: &Device) -> io::Result<()> {
    writeln!(out, "device {}", device.name)?;
    let mut line = |name: &str, value: String| writeln!(out, "  {name:<16} {value}");
    if let Some(driver) = &device.driver {
        line("driver", driver.clone())?;
    }
    if let Some(firmware) = &device.firmware {
        line("firmware", firmware.clone())?;
    }
    if let Some(board) = &device.board {
        line("board", board.clone())?;
    }
    line(
        "bus",
        device
            .pcie
            .as_ref()
            .map_or("none: software".to_owned(), |p| {
                let node = p
                    .node
                    .filter(|n| *n >= 0)
                    .map_or(String::new(), |n| format!(", NUMA node {n}"));
                let Pcie {
                    address,
                    speed,
                    lanes,
                    speed_most,
                    lanes_most,
                    ..
                } = p;
                format!("{address}: {speed} x{lanes} (it could: {speed_most} x{lanes_most}){node}")
            }),
    )?;
    if let Some(text) = device.pcie.as_ref().and_then(describe_requests) {
        line("on the bus", text)?;
    }
    if let Some(slot) = device.pcie.as_ref().and_then(|p| p.slot.as_ref()) {
        line("slot", format!("{}: could {}", slot.address, slot.most))?;
    }
    let way = device
        .uverbs
        .as_ref()
        .map_or("none".to_owned(), |u| u.path.clone());
    line("opened by", way)?;
    device
        .ports
        .iter()
        .try_for_each(|port| print_port(out, port))
}

/// MaxPayload and MaxReadRequest, as far as they were readable.
fn describe_requests(pcie: &Pcie) -> Option<String> {
    let payload = pcie
        .payload
        .map(|[is, can]| format!("packets of {is} B (it could: {can} B)"));
    let request = pcie.read_request.map(|bytes| format!("reads of {bytes} B"));
    let parts: Vec<String> = [payload, request].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn print_port(out: &mut impl Write, port: &Port) -> io::Result<()> {
    let interface = port.interface.as_ref().map_or(String::new(), |i| {
        let mtu = i.mtu.map_or(String::new(), |mtu| format!(" (MTU {mtu} B)"));
        format!(", {}{mtu}", i.name)
    });
    writeln!(
        out,
        "  port {:<11} {} ({}), {}, {}{interface}",
        port.number, port.state, port.physical, port.link_layer, port.rate
    )?;
    if let Some([active, most]) = port.mtu {
        writeln!(
            out,
            "    packets        {active} B of payload (at most {most} B)"
        )?;
    }
    let list = |priorities: &[u8]| match priorities {
        [] => "none".to_owned(),
        some => some
            .iter()
            .map(u8::to_string)
            .collect::<Vec<_>>()
            .join(", "),
    };
    let interface = port.interface.as_ref();
    if let Some(paused) = interface.and_then(|i| i.paused.as_deref()) {
        writeln!(out, "    paused (PFC)   priorities: {}", list(paused))?;
    }
    if let Some(slowed) = interface.and_then(|i| i.slowed.as_deref()) {
        writeln!(out, "    slowed (ECN)   priorities: {}", list(slowed))?;
    }
    for gid in &port.gids {
        let interface = gid.interface.as_deref().unwrap_or("");
        let line = format!(
            "    GID {:<10} {} {} {interface}",
            gid.index, gid.gid, gid.kind
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn print_library(out: &mut impl Write, library: &Libraries) -> io::Result<()> {
    match &library.path {
        Some(path) => writeln!(out, "verbs library      {}", path.display())?,
        None => writeln!(out, "verbs library      none")?,
    }
    for (name, files) in library.loaded.iter().filter(|(name, _)| *name != "ibverbs") {
        for file in files {
            writeln!(out, "  provider {name:<7} {}", file.display())?;
        }
    }
    let idle: Vec<&str> = library
        .drivers
        .iter()
        .map(|d| d.provider.as_str())
        .filter(|name| !library.loaded.contains_key(*name))
        .collect();
    if !idle.is_empty() {
        writeln!(out, "  not loaded       {}", idle.join(", "))?;
    }
    Ok(())
}

fn print_limits(out: &mut impl Write, limits: &Limits) -> io::Result<()> {
    let size =
        |bytes: Option<u64>| bytes.map_or("unlimited".to_owned(), |b| format!("{} KiB", b >> 10));
    let privileged = match limits.privileged {
        true => "; does not count for this user",
        false => "",
    };
    writeln!(
        out,
        "locked memory      {} (can be raised to: {}{privileged})",
        size(limits.locked),
        size(limits.locked_most)
    )
}
