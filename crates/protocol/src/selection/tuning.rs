//! Tuning file with the constants of a machine: written by `fastpath tune`, read at start.
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
//! For any contents of the file, the result is plausible constants or an error.

use super::constants::{Constants, FIELDS};
use fastpath_base::config::shorten;
use fastpath_base::stored::{Machine, TuningSource, read_file, write_file};
use std::io;
use std::path::{Path, PathBuf};

const TITLE: &str = "fastpath tuning 1";
const END: &str = "end";

/// Returns name and contents of the tuning file. `None` if there is no file and the user has not named one.
///
/// # Errors
/// The reason why the file cannot be used, with its name.
pub fn load(
    place: &TuningSource, machine: impl FnOnce() -> Machine,
) -> Result<Option<(PathBuf, Constants)>, String> {
    if matches!(place, TuningSource::Cache(folder) if !folder.is_dir()) {
        return Ok(None); // saves reading the machine's identity
    }
    let machine = machine();
    let Some(path) = place.path(&machine) else {
        return Ok(None);
    };
    let text = match read_file(&path) {
        Err(e)
            if e.kind() == io::ErrorKind::NotFound && matches!(place, TuningSource::Cache(_)) =>
        {
            return Ok(None);
        }
        read => read.map_err(|e| e.to_string()),
    };
    match text.and_then(|text| parse(&text, &machine)) {
        Ok(constants) => Ok(Some((path, constants))),
        Err(why) => Err(format!("{} is not used: {why}", shorten(&path.to_string_lossy()))),
    }
}

/// Parses the text of a file that was measured on `machine`.
///
/// # Errors
/// The reason why the text is invalid.
pub fn parse(text: &str, machine: &Machine) -> Result<Constants, String> {
    let mut lines = text.lines();
    if lines.next() != Some(TITLE) {
        return Err(format!("the first line of the file is not {TITLE:?}"));
    }
    let mut constants = Constants::default();
    let mut seen = vec![false; FIELDS.len()];
    let (mut processor, mut kernel) = (None, None);
    for line in &mut lines {
        if line == END {
            break;
        }
        let pair = line.split_once(": ");
        let (name, value) =
            pair.ok_or_else(|| format!("the line {line:?} is not a name and a value"))?;
        match FIELDS.iter().position(|field| field.name == name) {
            Some(index) if !seen[index] => {
                seen[index] = true;
                let number = value.parse::<f64>();
                let number =
                    number.map_err(|_| format!("the value {value:?} of {name} is not a number"))?;
                (FIELDS[index].set)(&mut constants, number);
            }
            None if name == "processor" && processor.is_none() => processor = Some(value),
            None if name == "kernel" && kernel.is_none() => kernel = Some(value),
            Some(_) => return Err(format!("the constant {name} occurs twice")),
            None => return Err(format!("{name:?} is not the name of a measured constant")),
        }
    }
    if !text.lines().any(|line| line == END) || lines.next().is_some() {
        return Err(format!("the file does not end with the line {END:?}"));
    }
    if let Some(index) = seen.iter().position(|seen| !seen) {
        return Err(format!("the constant {} is missing", FIELDS[index].name));
    }
    for (what, own, stored) in
        [("processor", &machine.processor, processor), ("kernel", &machine.kernel, kernel)]
    {
        if stored != Some(own) {
            let stored = stored.unwrap_or("none");
            return Err(format!("the file is for another {what}, {stored:?} instead of {own:?}"));
        }
    }
    constants.check().map(|()| constants)
}

/// Formats the text of a file.
pub fn format(constants: &Constants, machine: &Machine) -> String {
    let mut text =
        format!("{TITLE}\nprocessor: {}\nkernel: {}\n", machine.processor, machine.kernel);
    for field in FIELDS {
        text += &format!("{}: {}\n", field.name, (field.get)(constants));
    }
    text + END + "\n"
}

/// Writes the constants of a machine to a file.
///
/// # Errors
/// The error of the file system.
pub fn store(path: &Path, constants: &Constants, machine: &Machine) -> io::Result<()> {
    write_file(path, &format(constants, machine))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    fn machine() -> Machine {
        Machine { processor: "Some (R) Processor".to_owned(), kernel: "6.1.0-x".to_owned() }
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
            (good().replace(line, "line_ns: fast"), "not a number"),
            (good().replace(line, "line_ns: NaN"), "line_ns"),
            (good().replace(line, "line_ns: 1e300"), "line_ns"),
            (good().replace(line, "line_ns: -5"), "line_ns"),
            (good().replace(line, ""), "not a name and a value"),
            (good().replace(&format!("{line}\n"), ""), "line_ns is missing"),
            (good().replace(line, &format!("{line}\n{line}")), "twice"),
            (good().replace(line, "warp_ns: 1"), "name of a measured constant"),
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
            assert!(parse(&text[..len], &machine()).is_err(), "{:?}", &text[..len]);
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
    fn load__of_what_is_no_file_or_not_there_has_a_reason() {
        let named = |path: &str| load(&TuningSource::Named(path.into()), machine);
        assert!(named("/proc/self").unwrap_err().contains("regular file"));
        assert!(named("/dev/zero").unwrap_err().contains("regular file"));
        assert!(named("/proc/none").unwrap_err().contains("/proc/none"));
        assert_eq!(load(&TuningSource::Cache("/proc/none".into()), machine), Ok(None));
        assert_eq!(load(&TuningSource::Cache(std::env::temp_dir()), machine), Ok(None));
        assert_eq!(
            (load(&TuningSource::Off, machine), load(&TuningSource::Homeless, machine)),
            (Ok(None), Ok(None))
        );
    }

    #[test]
    fn store__can_be_loaded_and_leaves_nothing_else() {
        let folder = std::env::temp_dir().join(format!("fastpath-tuning-{}", std::process::id()));
        let path = folder.join("deep").join("file");
        let constants = Constants { line_ns: 12.5, ..Constants::default() };
        for _ in 0..2 {
            store(&path, &constants, &machine()).unwrap();
            let loaded = load(&TuningSource::Named(path.clone()), machine);
            assert_eq!(loaded, Ok(Some((path.clone(), constants))));
        }
        assert_eq!(fs::read_dir(folder.join("deep")).unwrap().count(), 1);
        fs::write(&path, [0xff; 10]).unwrap();
        assert!(
            load(&TuningSource::Named(path.clone()), machine).unwrap_err().contains("UTF-8 text")
        );
        fs::write(&path, vec![b'x'; 20_000]).unwrap();
        assert!(load(&TuningSource::Named(path), machine).unwrap_err().contains("too long"));
        fs::remove_dir_all(folder).unwrap();
    }
}
