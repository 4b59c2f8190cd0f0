//! Reads a device from sysfs, by its name (`mlx5_0`, `eth0`, `nvme0`) or its address.
//!
//! Without privileges the configuration space ends after 64 bytes. Then `current_link_speed`, `current_link_width` and
//! neighbouring files describe the link, and missing facts are listed as not read.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use fastpath_report::files::{self, read_text};

use super::DevicePath;
use super::classes::{class_name, virtio_name};
use super::config_space;
use super::function::{CapabilityState, LinkShape, PciFunction, PortType, generation_of_rate};

/// Classes whose entries have a `device` link to the PCI function.
const CLASSES: [&str; 4] = ["infiniband", "net", "nvme", "drm"];
/// Largest number of ports between a device and the processor.
const ABOVE_MAX: usize = 32;

/// Reads a device and the ports above it. `root` is `/sys`, or a tree like it.
///
/// # Errors
/// The name is not that of a PCI device. Unreadable facts of an existing device are not errors, but are listed.
pub fn read_device(root: &Path, name: &str) -> Result<DevicePath> {
    let folder = find_folder(root, name)?;
    let address = last_name(&folder);
    if !is_address(&address) {
        let path = folder.display();
        bail!("`{name}` is not on a PCI bus: {path} has no PCI address");
    }
    let mut device = read_function(&folder);
    // A virtual function has the link of its physical function.
    if let Ok(physical) = fs::canonicalize(folder.join("physfn")) {
        let of = read_function(&physical);
        device.unread.push(format!(
            "a virtual function has no registers for its link, so the registers of {} are shown",
            of.address
        ));
        (device.link_can, device.link_is) = (of.link_can, of.link_is);
        (device.payload_can, device.payload_is) = (of.payload_can, of.payload_is);
    }
    Ok(DevicePath {
        network: read_network(root, &folder),
        siblings: list_siblings(&folder, &device),
        above: list_above(&folder),
        device,
        source: "sysfs",
        copies: false,
    })
}

fn find_folder(root: &Path, name: &str) -> Result<PathBuf> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
        bail!(
            "`{name}` is not a device name; use a name such as mlx5_0 or eth0, or an address such \
             as 0000:41:00.0"
        );
    }
    let devices = root.join("bus/pci/devices");
    let mut places = vec![devices.join(name), devices.join(format!("0000:{name}"))];
    places.extend(CLASSES.map(|class| root.join("class").join(class).join(name).join("device")));
    let mut found = places.iter().filter_map(|p| fs::canonicalize(p).ok());
    let Some(mut folder) = found.next() else {
        let known = match list_names(root).join(", ") {
            none if none.is_empty() => "none".to_owned(),
            known => known,
        };
        bail!(
            "there is no device `{name}`; use an address such as 0000:41:00.0, or one of these \
             names: {known}"
        );
    };
    // The folder of a virtual adapter is below the folder of its PCI function.
    if !is_address(&last_name(&folder)) {
        let parent = folder.parent().filter(|p| is_address(&last_name(p)));
        folder = parent.map_or(folder.clone(), Path::to_owned);
    }
    Ok(folder)
}

fn list_names(root: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for class in CLASSES {
        let folder = root.join("class").join(class);
        let mut names = files::list_names(&folder);
        names.retain(|n| {
            let device = fs::canonicalize(folder.join(n).join("device"));
            let is_function = |p: &Path| is_address(&last_name(p));
            device.is_ok_and(|d| is_function(&d) || d.parent().is_some_and(is_function))
        });
        names.sort();
        all.extend(names);
    }
    all.truncate(20);
    all
}

fn last_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Whether a name is `domain:bus:device.function`.
fn is_address(name: &str) -> bool {
    let parts: Vec<&str> = name.split([':', '.']).collect();
    let hex = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_hexdigit());
    parts.len() == 4 && name.matches(':').count() == 2 && parts.iter().all(|p| hex(p))
}

fn list_above(folder: &Path) -> Vec<PciFunction> {
    let parents = folder.ancestors().skip(1).take(ABOVE_MAX);
    let ports = parents.take_while(|p| is_address(&last_name(p)));
    ports.map(read_function).collect()
}

/// Other functions of the card: the sibling folders.
fn list_siblings(folder: &Path, device: &PciFunction) -> Vec<String> {
    let mut siblings = files::list_names(folder.parent().unwrap_or(folder));
    siblings.retain(|n| is_address(n) && device.is_sibling(&PciFunction::new(n, "")));
    siblings.sort();
    siblings
}

fn read_number(path: &Path) -> Option<u32> {
    read_text(path)?.parse().ok()
}

/// Parses `8.0 GT/s PCIe` as a generation.
fn read_speed(path: &Path) -> Option<u8> {
    let text = read_text(path)?;
    generation_of_rate(text.split_whitespace().next()?.parse().ok()?)
}

fn read_function(folder: &Path) -> PciFunction {
    let mut function = PciFunction::new(&last_name(folder), &read_name(folder));
    read_config(folder, &mut function);
    let shape = |which: &str| LinkShape {
        generation: read_speed(&folder.join(format!("{which}_link_speed"))),
        lanes: read_number(&folder.join(format!("{which}_link_width"))).filter(|l| *l <= 32),
    };
    let (can, is) = (shape("max"), shape("current"));
    if function.link_can == LinkShape::default() {
        function.link_can = can;
    }
    if function.link_is == LinkShape::default() {
        function.link_is = is;
    }
    if function.shown == CapabilityState::Denied && is != LinkShape::default() {
        function.shown = CapabilityState::Registers;
        function.unread.push(
            "without root the kernel shows only width and speed of the link; run as root for \
             payload, read requests, power saving and checksums"
                .to_owned(),
        );
        function.port = function.port.or_else(|| guess_port(folder));
    } else if function.shown == CapabilityState::Denied
        && !folder.join("current_link_width").exists()
    {
        // Linux has the file `current_link_width` exactly for functions with the capability.
        function.shown = CapabilityState::Absent;
    }
    function.dma_bits = read_number(&folder.join("dma_mask_bits")).filter(|b| *b <= 64);
    function.numa_node = read_number(&folder.join("numa_node"));
    function.translated = match read_text(folder.join("iommu_group/type")).as_deref() {
        Some("identity") => Some(false),
        Some(kind) if kind.starts_with("DMA") => Some(true),
        _ => None,
    };
    function.asleep = read_text(folder.join("power_state"))
        .filter(|s| s.starts_with('D') && s != "D0" && s.len() <= 8);
    let corrected = read_text(folder.join("aer_dev_correctable"));
    function.errors.corrected_count = corrected.and_then(|t| count_link_errors(&t));
    function
}

fn read_config(folder: &Path, function: &mut PciFunction) {
    let path = folder.join("config");
    let mut bytes = Vec::new();
    let read = fs::File::open(&path).and_then(|f| f.take(4096).read_to_end(&mut bytes));
    let why = match read {
        Ok(_) => config_space::read(&bytes, function).err().map(|e| e.to_string()),
        Err(e) if e.kind() == ErrorKind::NotFound => Some("the file does not exist".to_owned()),
        Err(e) => Some(e.to_string()),
    };
    if let Some(why) = why {
        function.shown = CapabilityState::Denied;
        function.unread.push(format!("{}: {why}", path.display()));
    }
}

/// Guesses the role of a port without readable registers, by its class and by whether it is below another port.
fn guess_port(folder: &Path) -> Option<PortType> {
    let class = read_text(folder.join("class"))?;
    if !class.starts_with("0x0604") {
        return Some(PortType::Endpoint);
    }
    let below = folder.parent().is_some_and(|p| is_address(&last_name(p)));
    // On a path, upstream and downstream ports of switches alternate, so only a root port can be identified with
    // certainty.
    (!below).then_some(PortType::Root)
}

fn read_name(folder: &Path) -> String {
    let hex = |file: &str| {
        let text = read_text(folder.join(file))?;
        u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    };
    let (Some(vendor), Some(device), Some(class)) = (hex("vendor"), hex("device"), hex("class"))
    else {
        return String::new();
    };
    let [vendor, device, class] = [vendor, device, class >> 8].map(|n| n as u16);
    let is = match virtio_name(vendor, device) {
        Some(name) => name,
        None => class_name(class).to_owned(),
    };
    format!("{is} [{class:04x}] [{vendor:04x}:{device:04x}]")
}

/// Corrected errors of the link, without advisory errors.
fn count_link_errors(text: &str) -> Option<u64> {
    let of_link = ["RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout"];
    let counts = text.lines().filter_map(|line| {
        let (name, count) = line.split_once(' ')?;
        let count: u64 = count.trim().parse().ok()?;
        of_link.contains(&name).then_some(count)
    });
    counts.reduce(u64::saturating_add)
}

/// Data rate of the device's first network port, in Gb/s, and its name.
fn read_network(root: &Path, folder: &Path) -> Option<(f64, String)> {
    let own = |class: &str| {
        let entries = fs::read_dir(root.join("class").join(class)).ok()?;
        let mut paths = entries.flatten().map(|e| e.path());
        paths.find(|p| {
            fs::canonicalize(p.join("device"))
                .is_ok_and(|d| d == folder || d.parent() == Some(folder))
        })
    };
    let usable = |rate: f64| Some(rate).filter(|r| r.is_finite() && *r > 0.0);
    if let Some(path) = own("infiniband") {
        let port = path.join("ports/1");
        let rate = read_text(port.join("rate"))?;
        let signalled: f64 = rate.split_whitespace().next()?.parse().ok()?;
        // Up to QDR, eight of ten bits are data (InfiniBand Architecture Specification, volume 2).
        let old = ["SDR", "DDR", "QDR"].iter().any(|s| rate.contains(s));
        let is_ethernet = read_text(port.join("link_layer")).as_deref() == Some("Ethernet");
        let share = if old && !is_ethernet { 0.8 } else { 1.0 };
        let rate = clean(&rate);
        return Some((usable(signalled * share)?, format!("{}, port 1: {rate}", last_name(&path))));
    }
    let path = own("net")?;
    let megabits: f64 = read_text(path.join("speed"))?.parse().ok()?;
    Some((usable(megabits / 1e3)?, format!("{}: {megabits} Mb/s", last_name(&path))))
}

fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
