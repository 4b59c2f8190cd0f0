//! Inline size to request from each adapter: measured by `fastpath tune inline`, read when the adapter is opened. Each
//! device has a file beside the file of the machine's constants.
//!
//! ```text
//! fastpath inline 1
//! processor: Intel(R) Xeon(R) Processor
//! device: mlx5_0
//! part: 0x2c9:4119
//! firmware: 16.35.3006
//! driver: mlx5_core 6.1.0
//! bytes: 220
//! end
//! ```
//!
//! Any content of the file results in a valid size, or in an error text.

use crate::verbs::DeviceIdentity;
use crate::verbs::inline::Overrides;
use fastpath_base::config::{Config, Key, shorten};
use fastpath_base::stored::{Machine, TuningSource, read_file, safe_name, write_file};
use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};

const TITLE: &str = "fastpath inline 1";
const END: &str = "end";

/// Largest accepted size, in bytes. No known adapter grants so much.
pub const MOST: u32 = 16 * 1024;

fn key<'a>(identity: &'a DeviceIdentity, processor: &'a str) -> [(&'static str, &'a str); 5] {
    [
        ("processor", processor),
        ("device", &identity.name),
        ("part", &identity.part),
        ("firmware", &identity.firmware),
        ("driver", &identity.driver),
    ]
}

/// Path of a device's file; `None` if nothing is stored.
pub fn path(place: &TuningSource, identity: &DeviceIdentity, processor: &str) -> Option<PathBuf> {
    match place {
        TuningSource::Cache(folder) => {
            let parts = key(identity, processor).map(|(_, value)| value);
            // The device comes before the processor, because a long file name is truncated at its end.
            let [processor, device @ ..] = parts;
            let whole = format!("inline-{}-{processor}", device.join("-"));
            Some(folder.join(safe_name(&whole)))
        }
        TuningSource::Named(file) => {
            let mut name = file.as_os_str().to_owned();
            name.push(format!(".{}", safe_name(&identity.name)));
            Some(name.into())
        }
        TuningSource::Off | TuningSource::Homeless => None,
    }
}

/// Parses the text of a file.
///
/// # Errors
/// A message that names the fault in the text.
pub fn parse(text: &str, identity: &DeviceIdentity, processor: &str) -> Result<u32, String> {
    let mut lines = text.lines();
    if lines.next() != Some(TITLE) {
        return Err(format!("the first line of the file is not {TITLE:?}"));
    }
    for (name, own) in key(identity, processor) {
        let line = lines.next().unwrap_or_default();
        match line.split_once(": ") {
            Some((found, stored)) if found == name && stored == own => {}
            Some((found, stored)) if found == name => {
                return Err(format!(
                    "the file is for another {name}, {stored:?} instead of {own:?}"
                ));
            }
            _ => return Err(format!("the line {name} is missing")),
        }
    }
    let line = lines.next().unwrap_or_default();
    let (name, value) = line.split_once(": ").unwrap_or_default();
    let is_number = !value.is_empty() && value.bytes().all(|c| c.is_ascii_digit());
    if name != "bytes" || !is_number {
        return Err(format!("the line {line:?} is not a number of bytes"));
    }
    let bytes = value.parse().ok().filter(|bytes| *bytes <= MOST);
    let bytes = bytes.ok_or_else(|| {
        format!("{value} bytes of inline data are more than the {MOST} that are possible")
    })?;
    // Require the final newline: a text truncated within its last line would look complete.
    match (lines.next(), lines.next(), text.ends_with('\n')) {
        (Some(END), None, true) => Ok(bytes),
        _ => Err(format!("the file does not end with the line {END:?}")),
    }
}

/// Formats the text of a file.
pub fn format(bytes: u32, identity: &DeviceIdentity, processor: &str) -> String {
    let mut text = format!("{TITLE}\n");
    for (name, value) in key(identity, processor) {
        text += &format!("{name}: {value}\n");
    }
    text + &format!("bytes: {bytes}\n{END}\n")
}

/// Writes the file of a device, and creates its folder.
///
/// # Errors
/// Errors of the file system; or `bytes` exceeds [`MOST`].
pub fn store(
    path: &Path, bytes: u32, identity: &DeviceIdentity, processor: &str,
) -> io::Result<()> {
    if bytes > MOST {
        return Err(io::Error::other(format!(
            "{bytes} bytes of inline data are more than the {MOST} that are possible"
        )));
    }
    write_file(path, &format(bytes, identity, processor))
}

/// Lookup of stored sizes. Collects diagnostics about unusable files.
pub struct StoredInline {
    place: TuningSource,
    diagnostics: RefCell<Vec<String>>,
}

impl StoredInline {
    /// Uses the location that the user's variables name.
    pub fn of(config: &Config) -> Self {
        StoredInline { place: TuningSource::of(config), diagnostics: RefCell::default() }
    }

    /// Calls `act` with the sources of the inline size: the stored size and the user's variable.
    pub fn with_overrides<T>(&self, config: &Config, act: impl FnOnce(&Overrides<'_>) -> T) -> T {
        let find = |identity: &DeviceIdentity| self.find(identity);
        act(&Overrides {
            request: None,
            environment: config.number(Key::MaxInline).map(|bytes| bytes as u32),
            stored: Some(&find),
        })
    }

    /// Stored size of a device; `None` if nothing is stored. An unusable file counts as absent.
    pub fn find(&self, identity: &DeviceIdentity) -> Option<u32> {
        if matches!(&self.place, TuningSource::Cache(folder) if !folder.is_dir()) {
            return None; // without reading the machine's identity
        }
        let processor = Machine::current().processor;
        let path = path(&self.place, identity, &processor)?;
        let found = match read_file(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
            read => {
                read.map_err(|e| e.to_string()).and_then(|text| parse(&text, identity, &processor))
            }
        };
        let keep = |why| {
            let diagnostic = format!("{} is not used: {why}", shorten(&path.to_string_lossy()));
            self.diagnostics.borrow_mut().push(diagnostic);
        };
        found.map_err(keep).ok()
    }

    /// Takes the diagnostics about unusable files, one line each.
    pub fn take_diagnostics(&self) -> Vec<String> {
        self.diagnostics.take()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    const CPU: &str = "Some (R) Processor";

    fn identity() -> DeviceIdentity {
        DeviceIdentity {
            name: "mlx5_0".to_owned(),
            part: "0x2c9:4119".to_owned(),
            firmware: "16.35.3006".to_owned(),
            driver: "mlx5_core 6.1.0-x".to_owned(),
            software: false,
        }
    }

    fn good() -> String {
        format(96, &identity(), CPU)
    }

    #[test]
    fn format__is_what_parse_reads() {
        for bytes in [0, 1, 220, MOST] {
            let text = format(bytes, &identity(), CPU);
            assert_eq!(parse(&text, &identity(), CPU), Ok(bytes));
        }
    }

    #[test]
    fn parse__says_what_is_wrong() {
        let line = "bytes: 96";
        for (text, why) in [
            (String::new(), "first line"),
            (good().replace("inline 1", "inline 2"), "first line"),
            (good().replace("mlx5_0\n", "mlx5_1\n"), "another device"),
            (good().replace("4119", "4121"), "another part"),
            (good().replace("16.35", "16.36"), "another firmware"),
            (good().replace("6.1.0", "6.2.0"), "another driver"),
            (good().replace("Some", "Other"), "another processor"),
            (good().replace("part: 0x2c9:4119\n", ""), "part is missing"),
            (good().replace(line, "bytes: much"), "not a number"),
            (good().replace(line, "bytes: -1"), "not a number"),
            (good().replace(line, "bytes: +9"), "not a number"),
            (good().replace(line, "bytes: "), "not a number"),
            (good().replace(line, "bytes: 16385"), "more than the 16384"),
            (good().replace(line, "bytes: 99999999999"), "more than"),
            (good() + "more\n", "does not end"),
        ] {
            let error = parse(&text, &identity(), CPU).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn parse__refuses_every_text_that_was_cut_off() {
        let text = good();
        for len in 0..text.len() {
            let cut = &text[..len];
            assert!(parse(cut, &identity(), CPU).is_err(), "{cut:?}");
        }
    }

    proptest! {
        #[test]
        fn parse__damage_gives_a_size_within_bounds_or_a_reason(
            damage in prop::collection::vec((0_usize..400, any::<u8>()), 1..6),
        ) {
            let mut bytes = good().into_bytes();
            for (at, byte) in damage {
                let len = bytes.len();
                bytes[at % len] = byte;
            }
            if let Ok(text) = String::from_utf8(bytes) && let Ok(size) = parse(&text, &identity(), CPU) {
                prop_assert!(size <= MOST);
            }
        }
    }

    #[test]
    fn path__is_of_the_device_wherever_it_lies() {
        let at = |place: TuningSource, identity: &DeviceIdentity| path(&place, identity, CPU);
        let cached = at(TuningSource::Cache("/c".into()), &identity()).unwrap();
        assert_eq!(
            cached,
            Path::new("/c/inline-mlx5_0-0x2c9-4119-16.35.3006-mlx5_core-6.1.0-x-Some-R-Processor")
        );
        let named = at(TuningSource::Named("/site/tuning".into()), &identity()).unwrap();
        assert_eq!(named, Path::new("/site/tuning.mlx5_0"));
        let odd = DeviceIdentity { name: "../x".to_owned(), ..identity() };
        for place in [TuningSource::Cache("/c".into()), TuningSource::Named("/c/t".into())] {
            assert_eq!(at(place, &odd).unwrap().parent(), Some(Path::new("/c")));
        }
        assert_eq!(at(TuningSource::Off, &identity()), None);
        assert_eq!(at(TuningSource::Homeless, &identity()), None);
    }

    #[test]
    fn stored__is_found_and_damage_is_told_and_not_used() {
        let folder = std::env::temp_dir().join(format!("fastpath-inline-{}", std::process::id()));
        let stored = StoredInline {
            place: TuningSource::Cache(folder.clone()),
            diagnostics: RefCell::default(),
        };
        assert_eq!(stored.find(&identity()), None, "no folder");
        let processor = Machine::current().processor;
        let path = path(&stored.place, &identity(), &processor).unwrap();
        store(&path, 96, &identity(), &processor).unwrap();
        assert_eq!(stored.find(&identity()), Some(96));
        let newer = DeviceIdentity { firmware: "16.36.1".to_owned(), ..identity() };
        assert_eq!(stored.find(&newer), None, "of other firmware");
        assert_eq!(stored.take_diagnostics(), [""; 0]);
        fs::write(&path, [0xff; 10]).unwrap();
        assert_eq!(stored.find(&identity()), None);
        let diagnostics = stored.take_diagnostics();
        assert_eq!(diagnostics.len(), 1);
        assert!(
            diagnostics[0].contains("is not used: the file is not UTF-8 text"),
            "{diagnostics:?}"
        );
        assert!(!diagnostics[0].contains('\n'));
        assert!(store(&path, MOST + 1, &identity(), &processor).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
