//! The file in which the constants of a machine are kept: made by `fastpath tune`, read at start.
//!
//! ```text
//! fastpath tuning 1
//! processor: Intel(R) Xeon(R) Processor
//! kernel: 6.18.44
//! line_ns: 57.2
//! ...
//! end
//! ```
//!
//! Whatever the file holds, what comes of it are constants that can be believed, or a reason why not.

use super::constants::{Constants, FIELDS};
use fastpath_base::config::{Config, Key, shorten};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

const TITLE: &str = "fastpath tuning 1";
const END: &str = "end";
/// Most bytes that are read of a file.
const LONGEST: u64 = 16 * 1024;

/// What a file must have been measured on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// The one this process runs on, by what the kernel says.
    pub fn current() -> Machine {
        let cpuinfo = read_begin(Path::new("/proc/cpuinfo"), 4096).unwrap_or_default();
        let kernel = read_begin(Path::new("/proc/sys/kernel/osrelease"), 256).unwrap_or_default();
        Machine {
            processor: find_processor(&cpuinfo),
            kernel: one_line(&kernel),
        }
    }

    /// Name of its file: letters, digits and signs that are safe everywhere.
    fn file_name(&self) -> String {
        safe_name(&format!("tuning-{}-{}", self.processor, self.kernel))
    }
}

/// A file's name of letters, digits and signs that are safe everywhere.
pub(super) fn safe_name(whole: &str) -> String {
    let safe = |c: char| match c {
        c if c.is_ascii_alphanumeric() || ".-_".contains(c) => c,
        _ => '-',
    };
    let mut name: String = whole.chars().take(200).map(safe).collect();
    while name.contains("--") {
        name = name.replace("--", "-");
    }
    name
}

/// The name in the text of /proc/cpuinfo: `model name` on most processors, several numbers on ARM.
fn find_processor(cpuinfo: &str) -> String {
    let value = |name: &str| {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(key, _)| key.trim() == name);
        found.map(|(_, value)| one_line(value))
    };
    let numbers = || {
        let names = [
            "CPU implementer",
            "CPU architecture",
            "CPU variant",
            "CPU part",
        ];
        let found: Vec<String> = names.into_iter().filter_map(value).collect();
        (!found.is_empty()).then(|| found.join(" "))
    };
    let name = value("model name").or_else(numbers);
    name.unwrap_or_else(|| "unknown".to_owned())
}

fn one_line(text: &str) -> String {
    let first = text.trim().lines().next().unwrap_or("").trim();
    let name: String = first
        .chars()
        .filter(|c| !c.is_control())
        .take(100)
        .collect();
    if name.is_empty() {
        "unknown".to_owned()
    } else {
        name
    }
}

fn read_begin(path: &Path, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Where the constants come from, as `FASTPATH_TUNING` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// From nowhere: neither read nor measured.
    Off,
    /// The file that the user names.
    Named(PathBuf),
    /// The machine's file in this folder, which need not be there.
    Cache(PathBuf),
    /// There is no cache directory.
    Homeless,
}

impl Place {
    /// As the variables say.
    pub fn of(config: &Config) -> Place {
        match config.text(Key::Tuning) {
            "none" => Place::Off,
            "auto" | "" => find_cache(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))
                .map_or(Place::Homeless, Place::Cache),
            path => Place::Named(path.into()),
        }
    }

    /// The file, if there is to be one.
    pub fn path(&self, machine: &Machine) -> Option<PathBuf> {
        match self {
            Place::Named(path) => Some(path.clone()),
            Place::Cache(folder) => Some(folder.join(machine.file_name())),
            Place::Off | Place::Homeless => None,
        }
    }

    /// The file's name and what it holds; `None` where none is there and none need be.
    ///
    /// # Errors
    /// Why it cannot be used, with its name.
    pub fn load(
        &self,
        machine: impl FnOnce() -> Machine,
    ) -> Result<Option<(PathBuf, Constants)>, String> {
        if matches!(self, Place::Cache(folder) if !folder.is_dir()) {
            return Ok(None); // without asking what machine this is
        }
        let machine = machine();
        let Some(path) = self.path(&machine) else {
            return Ok(None);
        };
        let text = match read_file(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && matches!(self, Place::Cache(_)) => {
                return Ok(None);
            }
            read => read.map_err(|e| e.to_string()),
        };
        match text.and_then(|text| parse(&text, &machine)) {
            Ok(constants) => Ok(Some((path, constants))),
            Err(why) => Err(format!(
                "{} is not used: {why}",
                shorten(&path.to_string_lossy())
            )),
        }
    }
}

/// The folder of this program's files, by the XDG base directory specification.
fn find_cache(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let folder = xdg.and_then(absolute);
    let folder = folder.or_else(|| Some(home.and_then(absolute)?.join(".cache")));
    folder.map(|folder| folder.join("fastpath"))
}

/// The file's text. What is no file (a pipe would never end) is not opened.
pub(super) fn read_file(path: &Path) -> io::Result<String> {
    let other = |why: &str| io::Error::other(why.to_owned());
    if !fs::metadata(path)?.is_file() {
        return Err(other("it is not a file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?
        .take(LONGEST + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(other("it is too long to be one of ours"));
    }
    String::from_utf8(bytes).map_err(|_| other("it is no text"))
}

/// The constants in the text of a file that was measured on `machine`.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str, machine: &Machine) -> Result<Constants, String> {
    let mut lines = text.lines();
    if lines.next() != Some(TITLE) {
        return Err(format!("its first line is not {TITLE:?}"));
    }
    let mut constants = Constants::default();
    let mut seen = vec![false; FIELDS.len()];
    let (mut processor, mut kernel) = (None, None);
    for line in &mut lines {
        if line == END {
            break;
        }
        let pair = line.split_once(": ");
        let (name, value) = pair.ok_or_else(|| format!("{line:?} is not a name and a value"))?;
        match FIELDS.iter().position(|field| field.name == name) {
            Some(index) if !seen[index] => {
                seen[index] = true;
                let number = value.parse::<f64>();
                let number = number.map_err(|_| format!("{name}: {value:?} is no number"))?;
                (FIELDS[index].set)(&mut constants, number);
            }
            None if name == "processor" && processor.is_none() => processor = Some(value),
            None if name == "kernel" && kernel.is_none() => kernel = Some(value),
            Some(_) => return Err(format!("{name} is there twice")),
            None => return Err(format!("{name:?} is no constant")),
        }
    }
    if !text.lines().any(|line| line == END) || lines.next().is_some() {
        return Err(format!("it does not end with {END:?}"));
    }
    if let Some(index) = seen.iter().position(|seen| !seen) {
        return Err(format!("{} is missing", FIELDS[index].name));
    }
    for (what, own, stored) in [
        ("processor", &machine.processor, processor),
        ("kernel", &machine.kernel, kernel),
    ] {
        if stored != Some(own) {
            let stored = stored.unwrap_or("none");
            return Err(format!(
                "it is of another {what}, {stored:?}, and this is {own:?}"
            ));
        }
    }
    constants.check().map(|()| constants)
}

/// The text of a file.
pub fn format(constants: &Constants, machine: &Machine) -> String {
    let mut text = format!(
        "{TITLE}\nprocessor: {}\nkernel: {}\n",
        machine.processor, machine.kernel
    );
    for field in FIELDS {
        text += &format!("{}: {}\n", field.name, (field.get)(constants));
    }
    text + END + "\n"
}

/// Writes the constants of a machine into a file.
///
/// # Errors
/// As the file system says.
pub fn store(path: &Path, constants: &Constants, machine: &Machine) -> io::Result<()> {
    write_file(path, &format(constants, machine))
}

/// Writes a file, its folder too; whoever reads meanwhile sees the old one or the new one.
pub(super) fn write_file(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        fs::create_dir_all(folder)?;
    }
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{}", std::process::id()));
    let mut file = File::create_new(&fresh)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn machine() -> Machine {
        Machine {
            processor: "Some (R) Processor".to_owned(),
            kernel: "6.1.0-x".to_owned(),
        }
    }

    fn good() -> String {
        format(&Constants::default(), &machine())
    }

    #[test]
    fn format__is_what_parse_reads() {
        assert_eq!(parse(&good(), &machine()), Ok(Constants::default()));
    }

    #[test]
    fn parse__says_what_is_wrong() {
        let line = "line_ns: 120";
        for (text, why) in [
            (String::new(), "first line"),
            (good().replace(line, "line_ns: fast"), "no number"),
            (good().replace(line, "line_ns: NaN"), "line_ns"),
            (good().replace(line, "line_ns: 1e300"), "line_ns"),
            (good().replace(line, "line_ns: -5"), "line_ns"),
            (good().replace(line, ""), "not a name and a value"),
            (
                good().replace(&format!("{line}\n"), ""),
                "line_ns is missing",
            ),
            (good().replace(line, &format!("{line}\n{line}")), "twice"),
            (good().replace(line, "warp_ns: 1"), "no constant"),
            (good() + "more\n", "does not end"),
            (good().replace("Some", "Other"), "another processor"),
            (good().replace("6.1.0", "5.4.0"), "another kernel"),
            (good().replace("tuning 1", "tuning 2"), "first line"),
        ] {
            let error = parse(&text, &machine()).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn parse__refuses_every_text_that_was_cut_off() {
        let text = good();
        for len in 0..text.len() - 1 {
            assert!(
                parse(&text[..len], &machine()).is_err(),
                "{:?}",
                &text[..len]
            );
        }
    }

    proptest! {
        #[test]
        fn parse__any_text_gives_constants_to_believe_or_a_reason(text in ".{0,300}") {
            let _ = parse(&text, &machine());
        }

        #[test]
        fn parse__a_file_with_damage_gives_constants_to_believe_or_a_reason(
            damage in prop::collection::vec((0_usize..400, any::<u8>()), 1..6),
            cut in 0_usize..400,
        ) {
            let mut bytes = good().into_bytes();
            for (at, byte) in damage {
                let len = bytes.len();
                bytes[at % len] = byte;
            }
            bytes.truncate(bytes.len() - cut % 20);
            if let Ok(text) = String::from_utf8(bytes) && let Ok(constants) = parse(&text, &machine()) {
                prop_assert_eq!(constants.check(), Ok(()));
            }
        }
    }

    #[test]
    fn processor__is_found_on_every_kind() {
        let intel =
            "processor\t: 0\nvendor_id\t: X\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n";
        assert_eq!(find_processor(intel), "Some CPU @ 2 GHz");
        let arm = "processor : 0\nCPU implementer : 0x41\nCPU architecture: 8\nCPU part : 0xd0c\n";
        assert_eq!(find_processor(arm), "0x41 8 0xd0c");
        assert_eq!(find_processor(""), "unknown");
    }

    #[test]
    fn file_name__is_safe_whatever_the_machine_says() {
        let odd = Machine {
            processor: "../../etc\n/A (R)  B".to_owned(),
            kernel: "x".repeat(1000),
        };
        let name = odd.file_name();
        assert!(name.starts_with("tuning-..-..-etc-A-R-B-xxx"), "{name}");
        assert!(name.len() <= 200 && !name.contains('/'));
    }

    #[test]
    fn cache__follows_the_specification() {
        let of = |xdg: Option<&str>, home: Option<&str>| {
            find_cache(xdg.map(Into::into), home.map(Into::into))
        };
        assert_eq!(of(Some("/x"), Some("/h")), Some("/x/fastpath".into()));
        assert_eq!(
            of(Some("x"), Some("/h")),
            Some("/h/.cache/fastpath".into()),
            "not absolute"
        );
        assert_eq!(of(None, Some("/h")), Some("/h/.cache/fastpath".into()));
        assert_eq!((of(None, None), of(None, Some(""))), (None, None));
    }

    #[test]
    fn load__of_what_is_no_file_or_not_there_has_a_reason() {
        let named = |path: &str| Place::Named(path.into()).load(machine);
        assert!(named("/proc/self").unwrap_err().contains("not a file"));
        assert!(named("/dev/zero").unwrap_err().contains("not a file"));
        assert!(named("/not/there").unwrap_err().contains("/not/there"));
        assert_eq!(Place::Cache("/not/there".into()).load(machine), Ok(None));
        assert_eq!(Place::Cache(std::env::temp_dir()).load(machine), Ok(None));
        assert_eq!(
            (Place::Off.load(machine), Place::Homeless.load(machine)),
            (Ok(None), Ok(None))
        );
    }

    #[test]
    fn store__can_be_loaded_and_leaves_nothing_else() {
        let folder = std::env::temp_dir().join(format!("fastpath-tuning-{}", std::process::id()));
        let path = folder.join("deep").join("file");
        let constants = Constants {
            line_ns: 12.5,
            ..Constants::default()
        };
        for _ in 0..2 {
            store(&path, &constants, &machine()).unwrap();
            let loaded = Place::Named(path.clone()).load(machine);
            assert_eq!(loaded, Ok(Some((path.clone(), constants))));
        }
        assert_eq!(fs::read_dir(folder.join("deep")).unwrap().count(), 1);
        fs::write(&path, [0xff; 10]).unwrap();
        assert!(
            Place::Named(path.clone())
                .load(machine)
                .unwrap_err()
                .contains("no text")
        );
        fs::write(&path, vec![b'x'; 20_000]).unwrap();
        assert!(
            Place::Named(path)
                .load(machine)
                .unwrap_err()
                .contains("too long")
        );
        fs::remove_dir_all(folder).unwrap();
    }
}
