//! Parses the text of `lspci -vv`, by old and new versions, also with `-nn`, `-D` and `-vvv`. The text may have several
//! devices, may be truncated anywhere, and may be indented by tabs, spaces or not at all.
//!
//! The registers and fields are those of the PCI Express Base Specification, chapter 7, with the names of `lspci`.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::function::{
    Aspm, CapabilityState, Errors, LinkShape, PciFunction, PortType, WakeTimes, generation_of_rate,
};

/// Largest number of devices in a text.
const FUNCTIONS_MAX: usize = 65_536;
/// Largest parsed length of a line, in bytes.
const LINE_MAX: usize = 4096;
/// Largest length of a name, in characters.
const NAME_MAX: usize = 160;
/// Largest length of a time (`<512ns`, `unlimited`), in characters.
const TIME_MAX: usize = 24;

/// Parses all devices of a text.
///
/// # Errors
/// The text is not the output of `lspci -vv`, or has no facts about its devices.
pub fn parse(text: &str) -> Result<Vec<PciFunction>> {
    let mut raws: Vec<Raw> = Vec::new();
    for line in cut_lines(text) {
        let line = line.trim_start_matches([' ', '\t', '>', '\r', '\u{feff}']);
        if let Some((address, name)) = split_head(line) {
            if raws.len() == FUNCTIONS_MAX {
                break;
            }
            raws.push(Raw::new(address, name));
            continue;
        }
        if raws.is_empty() && starts_with_register(line) {
            // The text begins in the middle of a device, or has only lines selected by grep.
            raws.push(Raw::default());
        }
        if let Some(raw) = raws.last_mut() {
            raw.add(line.trim_end());
        }
    }
    if !raws.iter().any(Raw::has_details) {
        bail!(
            "{}; run `lspci -vv` as root and pass its output, in which a line with the address, \
             such as `41:00.0 InfiniBand: ...`, comes before `LnkCap:`, `LnkSta:` and others",
            name_other(text, !raws.is_empty())
        );
    }
    let last = raws.len() - 1;
    let functions = raws.iter().enumerate();
    Ok(functions.map(|(i, raw)| raw.describe(i == last)).collect())
}

/// Splits a text into lines of at most [`LINE_MAX`] bytes: text of other programs may have a line of any length.
fn cut_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(|line| {
        let mut end = line.len().min(LINE_MAX);
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        &line[..end]
    })
}

fn name_other(text: &str, has_heads: bool) -> String {
    let mut lines = cut_lines(text).map(str::trim).filter(|l| !l.is_empty());
    let Some(first) = lines.next() else {
        return "the text is empty".to_owned();
    };
    let quoted = |l: &str| split_head(l).is_some_and(|(_, rest)| rest.trim().starts_with('"'));
    if quoted(first) || first.starts_with("Slot:") {
        "the text is the machine-readable output of lspci (-mm), without registers".to_owned()
    } else if has_heads {
        "the text lists devices without their registers".to_owned()
    } else if first.starts_with("-[") || first.starts_with("-+-[") {
        "the text is the tree of buses (lspci -t)".to_owned()
    } else {
        format!("the text is not output of lspci: `{}`", clean(first, 60))
    }
}

/// Splits the first line of a device into address and rest.
fn split_head(line: &str) -> Option<(&str, &str)> {
    let (address, rest) = line.split_once([' ', '\t'])?;
    let (buses, device) = address.rsplit_once(':')?;
    let hex = |s: &str, count: std::ops::RangeInclusive<usize>| {
        count.contains(&s.len()) && s.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let (device, function) = device.split_once('.')?;
    let (domain, bus) = buses.split_once(':').unwrap_or(("0000", buses));
    let fits = hex(domain, 4..=8)
        && hex(bus, 2..=2)
        && hex(device, 2..=2)
        && matches!(function.as_bytes(), [b'0'..=b'7']);
    fits.then_some((address, rest))
}

/// Registers that identify a text of lspci.
const TELLING: [&str; 6] = ["DevCap", "DevCtl", "LnkCap", "LnkCtl", "LnkSta", "DevSta"];

fn starts_with_register(line: &str) -> bool {
    TELLING.iter().any(|r| line.strip_prefix(r).is_some_and(|rest| rest.starts_with(':')))
}

/// Makes a text printable: no control characters, limited length.
fn clean(text: &str, most: usize) -> String {
    let visible = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    text.trim().chars().take(most).map(visible).collect()
}

#[derive(Default)]
struct Raw<'a> {
    address: &'a str,
    name: &'a str,
    /// Text of each label, including continuation lines.
    fields: BTreeMap<&'a str, String>,
    /// Label to which a line without a label belongs; None after a repeated label.
    open: Option<&'a str>,
    express: Option<&'a str>,
    capabilities: usize,
    denied: bool,
    ends: bool,
}

impl<'a> Raw<'a> {
    fn new(address: &'a str, name: &'a str) -> Raw<'a> {
        Raw { address, name, ..Raw::default() }
    }

    fn add(&mut self, line: &'a str) {
        let label = line.split_once(':').filter(|(label, _)| is_label(label));
        let Some((label, rest)) = label else {
            let text = self.open.and_then(|open| self.fields.get_mut(open));
            if let Some(text) = text.filter(|t| t.len() < 4096) {
                text.push(' ');
                text.push_str(line);
            }
            return;
        };
        self.open = None;
        match label {
            "Capabilities" => self.add_capability(rest.trim()),
            "Kernel driver in use" | "Kernel modules" => self.ends = true,
            _ if !self.fields.contains_key(label) => {
                self.fields.insert(label, rest.to_owned());
                self.open = Some(label);
            }
            _ => {}
        }
    }

    fn add_capability(&mut self, rest: &'a str) {
        if rest.contains("access denied") {
            self.denied = true;
            return;
        }
        self.capabilities += 1;
        let named = rest.split_once("] ").map_or("", |(_, name)| name);
        if let Some(kind) = named.strip_prefix("Express") {
            self.express = self.express.or(Some(kind));
        }
    }

    fn has_details(&self) -> bool {
        self.capabilities > 0
            || self.denied
            || TELLING.iter().any(|r| self.fields.contains_key(r))
            || ["Control", "Status", "Flags"].iter().any(|l| self.fields.contains_key(l))
            || self.is_silent()
    }

    /// Whether every register read as ones: the device is gone.
    fn is_silent(&self) -> bool {
        self.name.contains("(rev ff)") && self.name.contains("(prog-if ff)")
    }

    fn shown(&self, is_last: bool) -> CapabilityState {
        let status = self.text("Status");
        if TELLING.iter().any(|r| self.fields.contains_key(r)) {
            CapabilityState::Registers
        } else if self.express.is_some() {
            CapabilityState::NameOnly
        } else if self.denied {
            CapabilityState::Denied
        } else if flag(status, &["Cap"]) == Some(false)
            || self.capabilities > 0 && (self.ends || !is_last)
        {
            CapabilityState::Absent
        } else {
            CapabilityState::CutOff
        }
    }

    fn text(&self, label: &str) -> &str {
        self.fields.get(label).map_or("", String::as_str)
    }

    fn describe(&self, is_last: bool) -> PciFunction {
        let mut unread = Vec::new();
        let [cap, ctl, link_cap, link_ctl, link_sta] =
            ["DevCap", "DevCtl", "LnkCap", "LnkCtl", "LnkSta"].map(|r| self.text(r));
        let mut size = |register: &str, what: &str, least: u32, most: u32| {
            let value = number(self.text(register), what)?;
            if value.is_power_of_two() && (least..=most).contains(&value) {
                return Some(value);
            }
            unread.push(format!(
                "{register} has `{what}{value}`, which is not a power of two from {least} to {most}"
            ));
            None
        };
        let payload_can = size("DevCap", "MaxPayload ", 128, 4096);
        let payload_is = size("DevCtl", "MaxPayload ", 128, 4096);
        let read_request = size("DevCtl", "MaxReadReq ", 128, 4096);
        let rcb = size("LnkCtl", "RCB ", 64, 128);
        let mut link = |register: &str| read_link(register, self.text(register), &mut unread);
        let (link_can, link_is) = (link("LnkCap"), link("LnkSta"));
        let latency = self.text("Latency");
        let target = after(self.text("LnkCtl2"), "Target Link Speed: ");
        PciFunction {
            answers: !self.is_silent(),
            shown: self.shown(is_last),
            port: self.express.and_then(read_port),
            secondary: read_secondary(self.text("Bus")),
            link_can,
            link_is,
            link_target: target.and_then(read_rate),
            retrained: flag(link_sta, &["BWMgmt"]),
            payload_can,
            payload_is,
            read_request,
            rcb,
            tags_can: count_tags(cap, self.text("DevCap2")),
            tags_is: count_tags(ctl, self.text("DevCtl2")),
            relaxed_order: flag(ctl, &["RlxdOrd"]),
            aspm_is: read_aspm(link_ctl),
            wake: WakeTimes {
                accepts_l0s: wake_time(cap, "L0s"),
                accepts_l1: wake_time(cap, "L1"),
                takes_l0s: wake_time(link_cap, "L0s").or_else(|| wake_time(link_cap, "L0")),
                takes_l1: wake_time(link_cap, "L1"),
            },
            ecrc: flag(self.text("AERCap"), &["CGenEn", "ECRCGenEn"]),
            errors: self.read_errors(),
            latency_timer: number(latency, ""),
            cache_line: number(latency, "Cache Line Size: ")
                .or_else(|| number(latency, "Cache Line Size ")),
            numa_node: number(self.text("NUMA node"), ""),
            unread,
            ..PciFunction::new(&clean(self.address, NAME_MAX), &clean(self.name, NAME_MAX))
        }
    }

    fn read_errors(&self) -> Errors {
        let (device, link) = (self.text("DevSta"), self.text("CESta"));
        // Advisory errors (AdvNonFatalErr) count as corrected in DevSta, but do not concern the link.
        let of_link = ["RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout"];
        let any = |text: &str, names: &[&str]| {
            let found: Vec<bool> = names.iter().filter_map(|n| flag(text, &[n])).collect();
            (!found.is_empty()).then(|| found.contains(&true))
        };
        Errors {
            corrected: any(link, &of_link).or_else(|| flag(device, &["CorrErr"])),
            corrected_count: None,
            uncorrected: any(device, &["NonFatalErr", "UncorrErr", "FatalErr"]),
        }
    }
}

/// Whether the text before a colon is a field name: letters and digits, a few words at most.
fn is_label(text: &str) -> bool {
    text.len() <= 24
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == ' ' || c == '-')
}

fn after<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    text.split_once(mark).map(|(_, rest)| rest)
}

/// Whole number right after `mark` (at the start if `mark` is empty).
fn number(text: &str, mark: &str) -> Option<u32> {
    let rest = after(text, mark)?.trim_start();
    let end = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest.get(..end)?.parse().ok()
}

/// Returns whether a word of `text` is one of `names` followed by `+` (true) or `-` (false), such as `RlxdOrd+`. `None`
/// without such a word.
fn flag(text: &str, names: &[&str]) -> Option<bool> {
    let signs = text.split([' ', '\t', ',', ';']).filter_map(|word| {
        let (name, sign) = word.split_at_checked(word.len().checked_sub(1)?)?;
        names.contains(&name).then_some(sign)
    });
    signs.into_iter().find_map(|sign| match sign {
        "+" => Some(true),
        "-" => Some(false),
        _ => None,
    })
}

fn read_rate(text: &str) -> Option<u8> {
    let end = text.find("GT/s")?;
    generation_of_rate(text.get(..end)?.trim().parse().ok()?)
}

fn read_link(register: &str, text: &str, unread: &mut Vec<String>) -> LinkShape {
    let speed = after(text, "Speed ").map(|s| s.split(',').next().unwrap_or(s).trim());
    let generation = speed.and_then(read_rate);
    if let (Some(speed), None) = (speed, generation) {
        unread.push(format!(
            "{register} has `Speed {}`, which is not a speed of PCI Express",
            clean(speed, TIME_MAX)
        ));
    }
    let mut lanes = number(text, "Width x");
    if let Some(odd) = lanes.filter(|l| ![0, 1, 2, 4, 8, 12, 16, 32].contains(l)) {
        unread.push(format!(
            "{register} has `Width x{odd}`, but a link has 1, 2, 4, 8, 12, 16 or 32 lanes"
        ));
        lanes = None;
    }
    LinkShape { generation, lanes }
}

fn read_port(kind: &str) -> Option<PortType> {
    let kind = kind.trim_start();
    let kind = match kind.strip_prefix("(v").and_then(|k| k.split_once(')')) {
        Some((_, rest)) => rest.trim_start(),
        None => kind,
    };
    let known = [
        ("Endpoint", PortType::Endpoint),
        ("Legacy Endpoint", PortType::Endpoint),
        ("Root Port", PortType::Root),
        ("Upstream Port", PortType::Upstream),
        ("Downstream Port", PortType::Downstream),
        ("PCI-Express to PCI", PortType::Bridge),
        ("PCI/PCI-X to PCI-Express", PortType::Bridge),
        ("Root Complex", PortType::Integrated),
    ];
    let found = known.iter().find(|(name, _)| kind.starts_with(name));
    found.map(|(_, port)| *port)
}

fn read_secondary(text: &str) -> Option<u8> {
    let digits = after(text, "secondary=")?.get(..2)?;
    u8::from_str_radix(digits, 16).ok()
}

fn count_tags(first: &str, second: &str) -> Option<u32> {
    match (flag(first, &["ExtTag"]), flag(second, &["10BitTagReq"])) {
        (_, Some(true)) => Some(768),
        (Some(true), _) => Some(256),
        (Some(false), _) => Some(32),
        (None, _) => None,
    }
}

fn read_aspm(text: &str) -> Option<Aspm> {
    let states = after(text, "ASPM ")?.split([',', ';']).next()?;
    let has = |state: &str| states.split_whitespace().any(|word| word == state);
    let known = has("L0s") || has("L1") || has("Disabled") || states.contains("not supported");
    known.then(|| Aspm { l0s: has("L0s"), l1: has("L1") })
}

/// Time after `Latency`: `Exit Latency L0s <1us, L1 <4us`.
fn wake_time(text: &str, state: &str) -> Option<String> {
    let times = after(text, "Latency ")?;
    let of_state = times.split(',').take(2).find_map(|part| {
        let rest = part.trim().strip_prefix(state)?;
        let time = rest.strip_prefix(' ')?;
        // The next field may follow without a comma.
        time.split_whitespace().next()
    })?;
    Some(clean(of_state, TIME_MAX))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
