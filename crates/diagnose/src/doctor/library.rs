//! The verbs library and its providers: configured ones, loaded ones, and their files.
//!
//! libibverbs reads `/etc/libibverbs.d/*.driver`, each naming a provider, and loads `lib<name>-rdmav<ABI>.so` from a
//! folder beside itself, or `<name>-rdmav<ABI>.so` if the name is a path. A provider given by a path is loaded in
//! addition to the installed one. This is the classic way to run the wrong of two copies.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fastpath_report::files::{list_names, read_text};
use fastpath_transport::verbs::{DeviceContext, Library, list_devices};
use serde::Serialize;

use super::devices::Device;

/// The verbs library as loaded by this process.
#[derive(Debug, Default, Serialize)]
pub(super) struct Libraries {
    pub path: Option<PathBuf>,
    /// Reason for which the library was not loaded, or lists no devices.
    pub problem: Option<String>,
    pub offered: Vec<String>,
    pub drivers: Vec<Driver>,
    /// Providers in this process's memory, by name. More than one file is an error.
    pub loaded: BTreeMap<String, Vec<PathBuf>>,
}

/// A line `driver NAME` of a file of `/etc/libibverbs.d`.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Driver {
    pub provider: String,
    pub named_in: PathBuf,
    /// File of the provider; None if it is missing.
    pub file: Option<PathBuf>,
    pub by_path: bool,
}

/// Loads the library and its providers, opens each device, reads the memory map, and adds facts about ports.
pub(super) fn load(root: &Path, devices: &mut [Device]) -> Libraries {
    let mut found = Libraries::default();
    match Library::load() {
        Err(e) => found.problem = Some(e.to_string()),
        Ok(library) => {
            found.path = Some(library.path.clone());
            match list_devices(library) {
                Ok(names) => found.offered = names,
                Err(e) => found.problem = Some(e.to_string()),
            }
            for device in devices.iter_mut().filter(|d| found.offered.contains(&d.name)) {
                device.opened = Some(ask(library, device));
            }
        }
    }
    found.drivers = list_drivers(root, found.path.as_deref());
    let known: Vec<&str> = found.drivers.iter().map(|d| d.provider.as_str()).collect();
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    found.loaded = find_providers(&maps, &known);
    found
}

fn ask(library: &'static Library, device: &mut Device) -> Result<(), String> {
    let context = DeviceContext::open(library, &device.name).map_err(|e| e.to_string())?;
    for port in &mut device.ports {
        let number = u8::try_from(port.number).map_err(|e| e.to_string())?;
        let said = context.query_port(number).map_err(|e| e.to_string())?;
        port.mtu = Some([bytes_of_mtu(said.active_mtu), bytes_of_mtu(said.max_mtu)]);
    }
    Ok(())
}

/// Converts an MTU code, from 1 for 256 bytes to 5 for 4096.
fn bytes_of_mtu(number: i32) -> u32 {
    128 << number.clamp(0, 16)
}

/// Lists the configured providers, in the order in which the files are read.
pub(super) fn list_drivers(root: &Path, library: Option<&Path>) -> Vec<Driver> {
    let folder = root.join("etc/libibverbs.d");
    let mut names = list_names(&folder);
    names.retain(|name| name.ends_with(".driver"));
    names.sort();
    let beside = library.and_then(Path::parent).map(|p| p.join("libibverbs"));
    let mut drivers = Vec::new();
    for name in names {
        let named_in = folder.join(name);
        for line in read_text(&named_in).unwrap_or_default().lines() {
            let mut words = line.split_whitespace();
            if let (Some("driver"), Some(named)) = (words.next(), words.next()) {
                drivers.push(resolve_driver(named, &named_in, beside.as_deref()));
            }
        }
    }
    drivers
}

fn resolve_driver(named: &str, named_in: &Path, beside: Option<&Path>) -> Driver {
    let by_path = named.starts_with('/');
    let (folder, stem) = match (by_path, named.rsplit_once('/')) {
        (true, Some((folder, stem))) => (Some(PathBuf::from(folder)), stem.to_owned()),
        _ => (beside.map(Path::to_owned), format!("lib{named}")),
    };
    let file = folder.and_then(|folder| {
        let mut files = list_names(&folder);
        files.retain(|file| {
            file.strip_prefix(&stem)
                .is_some_and(|rest| rest.starts_with("-rdmav") && rest.ends_with(".so"))
        });
        files.sort();
        files.pop().map(|file| folder.join(file))
    });
    Driver {
        provider: stem.strip_prefix("lib").unwrap_or(&stem).to_owned(),
        named_in: named_in.to_owned(),
        file,
        by_path,
    }
}

/// Finds the files of providers, and of the verbs library, in a process's memory map, by provider. The map has the
/// targets of symbolic links: `libmlx5-rdmav34.so` appears as `libmlx5.so.1.24.44.0`, which `known` names identify.
pub(super) fn find_providers(maps: &str, known: &[&str]) -> BTreeMap<String, Vec<PathBuf>> {
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let paths = maps.lines().filter_map(|line| {
        let at = line.find('/')?;
        Some(Path::new(line[at..].trim_end_matches(" (deleted)")))
    });
    for path in paths {
        let Some(name) = path.file_name().and_then(|name| provider_name(name.to_str()?, known))
        else {
            continue;
        };
        let files = found.entry(name).or_default();
        if !files.iter().any(|file| file == path) {
            files.push(path.to_owned());
        }
    }
    found
}

/// Provider name: `mlx5` for `libmlx5-rdmav34.so`, and for `libmlx5.so.1.24.44.0` if that name is known.
fn provider_name(file: &str, known: &[&str]) -> Option<String> {
    let stem = file.strip_prefix("lib").unwrap_or(file);
    if let Some((name, _)) = stem.split_once("-rdmav") {
        return Some(name.to_owned());
    }
    let (name, _) = stem.split_once(".so")?;
    (name == "ibverbs" || known.contains(&name)).then(|| name.to_owned())
}

impl Libraries {
    /// Providers with several files, in memory or configured.
    pub(super) fn duplicates(&self) -> BTreeMap<&str, Vec<&Path>> {
        let mut files: BTreeMap<&str, Vec<&Path>> = BTreeMap::new();
        for (name, loaded) in &self.loaded {
            files.entry(name).or_default().extend(loaded.iter().map(PathBuf::as_path));
        }
        let mut configured: BTreeMap<&str, Vec<&Path>> = BTreeMap::new();
        for driver in &self.drivers {
            if let Some(file) = &driver.file {
                configured.entry(&driver.provider).or_default().push(file);
            }
        }
        for (name, mut paths) in configured {
            paths.sort();
            paths.dedup_by_key(|path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf()));
            let all = files.entry(name).or_default();
            if paths.len() > 1 && all.len() < 2 {
                *all = paths;
            }
        }
        files.retain(|_, paths| paths.len() > 1);
        files
    }
}
