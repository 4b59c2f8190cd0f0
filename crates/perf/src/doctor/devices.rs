//! What the kernel says of RDMA devices, from sysfs below a root that tests choose.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// An RDMA device.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Device {
    pub name: String,
    /// The kernel's module, where the device lies on a bus.
    pub driver: Option<String>,
    pub firmware: Option<String>,
    pub node_guid: Option<String>,
    /// The way into it for programs.
    pub uverbs: Option<Uverbs>,
    /// None: it lies on no PCIe bus, it is software.
    pub pcie: Option<Pcie>,
    pub ports: Vec<Port>,
    /// What opening it through the library said; None: not tried.
    pub opened: Option<Result<(), String>>,
}

/// The file through which programs reach a device.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Uverbs {
    pub path: String,
    /// Why this user cannot open it.
    pub problem: Option<String>,
}

/// The link to the bus: what it runs at, and what the adapter could.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Pcie {
    pub address: String,
    pub node: Option<i32>,
    /// As the kernel prints it, such as `16.0 GT/s PCIe`.
    pub speed: String,
    pub speed_most: String,
    pub lanes: u32,
    pub lanes_most: u32,
}

/// A port, numbered from 1.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Port {
    pub number: u32,
    /// Such as `ACTIVE`, `DOWN`, `INIT`.
    pub state: String,
    /// Such as `LinkUp`, `Polling`, `Disabled`.
    pub physical: String,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// As the kernel prints it, such as `100 Gb/sec (4X EDR)`.
    pub rate: String,
    /// Bytes of payload in a packet: in use, and the device's most. None: the library was not asked.
    pub mtu: Option<[u32; 2]>,
    /// The network interface that the port's addresses belong to.
    pub interface: Option<Interface>,
    /// The rows of the GID table that are not empty.
    pub gids: Vec<Gid>,
}

/// A row of a GID table.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Gid {
    pub index: u32,
    pub gid: String,
    /// Such as `RoCE v2`.
    pub kind: String,
}

/// A network interface.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Interface {
    pub name: String,
    /// Bytes; None: it is not in this network namespace.
    pub mtu: Option<u32>,
    pub state: Option<String>,
}

/// An adapter without an RDMA device.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Undriven {
    pub address: String,
    pub vendor: String,
    pub device: String,
    /// The driver it has, which makes no RDMA device of it.
    pub driver: Option<String>,
}

/// All devices, by name.
pub(super) fn list(root: &Path) -> Vec<Device> {
    let mut names = list_names(&root.join("sys/class/infiniband"));
    names.sort();
    names.iter().map(|name| read_device(root, name)).collect()
}

fn read_device(root: &Path, name: &str) -> Device {
    let folder = root.join("sys/class/infiniband").join(name);
    let mut ports: Vec<u32> = list_names(&folder.join("ports"))
        .iter()
        .filter_map(|number| number.parse().ok())
        .collect();
    ports.sort_unstable();
    Device {
        name: name.to_owned(),
        driver: link_name(&folder.join("device/driver")),
        firmware: read(&folder.join("fw_ver")).filter(|text| !text.is_empty()),
        node_guid: read(&folder.join("node_guid")),
        uverbs: find_uverbs(root, name),
        pcie: read_pcie(&folder.join("device")),
        ports: ports
            .into_iter()
            .map(|number| read_port(root, &folder, number))
            .collect(),
        opened: None,
    }
}

fn find_uverbs(root: &Path, device: &str) -> Option<Uverbs> {
    let folder = root.join("sys/class/infiniband_verbs");
    let found = list_names(&folder)
        .into_iter()
        .find(|name| read(&folder.join(name).join("ibdev")).as_deref() == Some(device))?;
    let path = format!("/dev/infiniband/{found}");
    let opened = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(root.join(path.trim_start_matches('/')));
    Some(Uverbs {
        path,
        problem: opened.err().map(|e| e.to_string()),
    })
}

fn read_pcie(folder: &Path) -> Option<Pcie> {
    let number = |name: &str| read(&folder.join(name))?.parse().ok();
    Some(Pcie {
        address: link_name(folder)?,
        node: read(&folder.join("numa_node")).and_then(|text| text.parse().ok()),
        speed: read(&folder.join("current_link_speed"))?,
        speed_most: read(&folder.join("max_link_speed"))?,
        lanes: number("current_link_width")?,
        lanes_most: number("max_link_width")?,
    })
}

fn read_port(root: &Path, device: &Path, number: u32) -> Port {
    let folder = device.join("ports").join(number.to_string());
    let text = |name: &str| read(&folder.join(name)).unwrap_or_default();
    // `4: ACTIVE`
    let after_number = |name: &str| {
        let text = text(name);
        text.rsplit(": ").next().unwrap_or_default().to_owned()
    };
    let gids = read_gids(&folder);
    let interface = gids
        .iter()
        .find_map(|gid| read(&folder.join(format!("gid_attrs/ndevs/{}", gid.index))))
        .or_else(|| list_names(&device.join("device/net")).into_iter().min());
    Port {
        number,
        state: after_number("state"),
        physical: after_number("phys_state"),
        link_layer: text("link_layer"),
        rate: text("rate"),
        mtu: None,
        interface: interface.map(|name| {
            let folder = root.join("sys/class/net").join(&name);
            Interface {
                mtu: read(&folder.join("mtu")).and_then(|text| text.parse().ok()),
                state: read(&folder.join("operstate")),
                name,
            }
        }),
        gids,
    }
}

fn read_gids(port: &Path) -> Vec<Gid> {
    let mut rows: Vec<u32> = list_names(&port.join("gids"))
        .iter()
        .filter_map(|index| index.parse().ok())
        .collect();
    rows.sort_unstable();
    let filled = |index: u32| {
        let gid = read(&port.join(format!("gids/{index}")))?;
        let kind = read(&port.join(format!("gid_attrs/types/{index}"))).unwrap_or_default();
        let empty = !gid.contains(|c: char| c.is_ascii_hexdigit() && c != '0')
            || gid == "fe80:0000:0000:0000:0000:0000:0000:0000";
        (!empty).then_some(Gid { index, gid, kind })
    };
    rows.into_iter().filter_map(filled).collect()
}

/// InfiniBand controllers that are no RDMA devices.
pub(super) fn list_undriven(root: &Path) -> Vec<Undriven> {
    const INFINIBAND: &str = "0x0207";
    let folder = root.join("sys/bus/pci/devices");
    let mut names = list_names(&folder);
    names.sort();
    let undriven = |name: &String| {
        let at = folder.join(name);
        let class = read(&at.join("class"))?;
        (class.starts_with(INFINIBAND) && list_names(&at.join("infiniband")).is_empty()).then(
            || Undriven {
                address: name.clone(),
                vendor: read(&at.join("vendor")).unwrap_or_default(),
                device: read(&at.join("device")).unwrap_or_default(),
                driver: link_name(&at.join("driver")),
            },
        )
    };
    names.iter().filter_map(undriven).collect()
}

/// A file's line; None if it is not there or cannot be read, as empty rows of a GID table cannot.
pub(super) fn read(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The names in a folder; none if it is not there.
pub(super) fn list_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// The last part of what a link points to.
fn link_name(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}
