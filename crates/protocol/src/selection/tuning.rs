//! Tuning file with the constants of a machine: written by `fastpath tune`, read at start.
//!
//! ```text
//! fastpath tuning 2
//! processor: Intel(R) Xeon(R) Processor
//! kernel: 6.18.44
//! measured_s: 1796058726
//! processors: 0,1
//! load: 0.06
//! share: 0.998
//! line_ns: 57.2 57.1 58.3
//! post_ns: not measured
//! ...
//! end
//! ```
//!
//! A constant has its value, and the smallest and largest value of repeated measurements. One that was not measured
//! keeps its default. A file of version 1 has only values, without intervals and conditions.
//!
//! For any contents of the file, the result is plausible constants or an error.

use super::constants::{Constants, FIELDS};
use fastpath_base::config::shorten;
use fastpath_base::stored::{Machine, TuningSource, read_file, write_file};
use std::io;
use std::path::{Path, PathBuf};

const TITLE: &str = "fastpath tuning 2";
const FIRST_TITLE: &str = "fastpath tuning 1";
const END: &str = "end";
const NOT_MEASURED: &str = "not measured";

/// Contents of a tuning file.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuning {
    /// Constants; defaults for those that were not measured.
    pub constants: Constants,
    /// Smallest and largest value of repeated measurements, for each of [`FIELDS`]; `None` if there is none.
    pub intervals: Vec<Option<[f64; 2]>>,
    /// Conditions of the measurement; `None` in version 1.
    pub conditions: Option<Conditions>,
}

/// Conditions of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions {
    /// Time of the measurement, in seconds since 1970.
    pub measured_s: u64,
    /// Processors that were used.
    pub processors: [usize; 2],
    /// Number of runnable processes before the measurement, a mean over one minute.
    pub load: f64,
    /// Share of the processors' time that the measurement got, 0 to 1. A small share shows a busy machine.
    pub share: f64,
}

impl Tuning {
    /// Returns the names of the constants that were not measured. A file of version 1 does not mark them.
    pub fn list_unmeasured(&self) -> Vec<&'static str> {
        let has_marks = self.conditions.is_some();
        let fields = FIELDS.iter().zip(&self.intervals);
        fields
            .filter(|(_, found)| has_marks && found.is_none())
            .map(|(field, _)| field.name)
            .collect()
    }
}

impl Conditions {
    /// Parses the lines of a file; `None` if one is missing or not a number.
    fn parse(lines: &[(&str, &str)]) -> Option<Conditions> {
        let find = |wanted| lines.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
        let number = |name| find(name)?.parse::<f64>().ok().filter(|value| value.is_finite());
        let (first, second) = find("processors")?.split_once(',')?;
        Some(Conditions {
            measured_s: find("measured_s")?.parse().ok()?,
            processors: [first.parse().ok()?, second.parse().ok()?],
            load: number("load")?,
            share: number("share")?,
        })
    }

    fn format(&self) -> String {
        let Conditions { measured_s, processors: [first, second], load, share } = self;
        format!(
            "measured_s: {measured_s}\nprocessors: {first},{second}\nload: {load:.2}\n\
             share: {share:.3}\n"
        )
    }
}

/// Names of the lines with [`Conditions`].
const CONDITIONS: [&str; 4] = ["measured_s", "processors", "load", "share"];

/// Returns name and contents of the tuning file. `None` if there is no file and the user has not named one.
///
/// # Errors
/// The reason why the file cannot be used, with its name.
pub fn load(
    place: &TuningSource, machine: impl FnOnce() -> Machine,
) -> Result<Option<(PathBuf, Tuning)>, String> {
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
        Ok(tuning) => Ok(Some((path, tuning))),
        Err(why) => Err(format!("{} is not used: {why}", shorten(&path.to_string_lossy()))),
    }
}

/// Parses the text of a file that was measured on `machine`.
///
/// # Errors
/// The reason why the text is invalid.
pub fn parse(text: &str, machine: &Machine) -> Result<Tuning, String> {
    let mut lines = text.lines();
    let title = lines.next();
    if title != Some(TITLE) && title != Some(FIRST_TITLE) {
        return Err(format!("the first line of the file is not {TITLE:?}"));
    }
    let mut constants = Constants::default();
    let mut intervals = vec![None; FIELDS.len()];
    let mut seen = vec![false; FIELDS.len()];
    let (mut processor, mut kernel, mut conditions) = (None, None, Vec::new());
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
                if value != NOT_MEASURED {
                    let (number, interval) = parse_value(name, value)?;
                    (FIELDS[index].set)(&mut constants, number);
                    intervals[index] = interval;
                }
            }
            None if name == "processor" && processor.is_none() => processor = Some(value),
            None if name == "kernel" && kernel.is_none() => kernel = Some(value),
            None if CONDITIONS.contains(&name) => conditions.push((name, value)),
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
    constants.check()?;
    let conditions = Conditions::parse(&conditions);
    if title == Some(TITLE) && conditions.is_none() {
        return Err("the conditions of the measurement are missing or no numbers".to_owned());
    }
    Ok(Tuning { constants, intervals, conditions })
}

/// Parses a value, alone or with the interval that contains it.
fn parse_value(name: &str, text: &str) -> Result<(f64, Option<[f64; 2]>), String> {
    let numbers: Result<Vec<f64>, _> = text.split(' ').map(str::parse).collect();
    match numbers.as_deref() {
        Ok(&[value]) => Ok((value, None)),
        Ok(&[value, low, high]) if low <= value && value <= high => Ok((value, Some([low, high]))),
        Ok(_) => Err(format!("the values {text:?} of {name} are not a value and its interval")),
        Err(_) => Err(format!("the value {text:?} of {name} is not a number")),
    }
}

/// Formats the text of a file.
pub fn format(tuning: &Tuning, machine: &Machine) -> String {
    let Machine { processor, kernel } = machine;
    let title = if tuning.conditions.is_some() { TITLE } else { FIRST_TITLE };
    let mut text = format!("{title}\nprocessor: {processor}\nkernel: {kernel}\n");
    text += &tuning.conditions.as_ref().map_or(String::new(), Conditions::format);
    for (field, interval) in FIELDS.iter().zip(&tuning.intervals) {
        let value = (field.get)(&tuning.constants);
        let value = match interval {
            Some([low, high]) => format!("{value} {low} {high}"),
            None if tuning.conditions.is_some() => NOT_MEASURED.to_owned(),
            None => value.to_string(),
        };
        text += &format!("{}: {value}\n", field.name);
    }
    text + END + "\n"
}

/// Writes a measurement of a machine to a file.
///
/// # Errors
/// The error of the file system.
pub fn store(path: &Path, tuning: &Tuning, machine: &Machine) -> io::Result<()> {
    write_file(path, &format(tuning, machine))
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

    /// A measurement of `line_ns` alone.
    fn measured(line_ns: f64) -> Tuning {
        let mut intervals = vec![None; FIELDS.len()];
        intervals[0] = Some([line_ns, line_ns + 1.5]);
        Tuning {
            constants: Constants { line_ns, ..Constants::default() },
            intervals,
            conditions: Some(Conditions {
                measured_s: 1_796_058_726,
                processors: [0, 3],
                load: 0.25,
                share: 0.995,
            }),
        }
    }

    fn good() -> String {
        format(&measured(120.0), &machine())
    }

    #[test]
    fn format__is_what_parse_reads() {
        assert_eq!(parse(&good(), &machine()), Ok(measured(120.0)));
        assert!(good().contains("\npost_ns: not measured\n"), "{}", good());
        assert!(!measured(1.0).list_unmeasured().contains(&"line_ns"));
        assert!(measured(1.0).list_unmeasured().contains(&"step_ns"));
    }

    #[test]
    fn parse__reads_version_1_which_has_no_conditions() {
        let first =
            Tuning { intervals: vec![None; FIELDS.len()], conditions: None, ..measured(57.5) };
        let text = format(&first, &machine());
        assert!(text.starts_with("fastpath tuning 1\n") && text.contains("\nline_ns: 57.5\n"));
        assert_eq!(parse(&text, &machine()), Ok(first.clone()));
        assert!(first.list_unmeasured().is_empty());
    }

    #[test]
    fn parse__says_what_is_wrong() {
        let line = "line_ns: 120 120 121.5";
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
            (good().replace("tuning 2", "tuning 3"), "first line"),
            (good().replace(line, "line_ns: 120 121 122"), "a value and its interval"),
            (good().replace(line, "line_ns: 120 119"), "a value and its interval"),
            (good().replace("measured_s: 1", "measured_s: -1"), "conditions"),
            (good().replace("processors: 0,3", "processors: 0"), "conditions"),
            (good().replace("share: 0.995", "share: NaN"), "conditions"),
            (good().replace("load: 0.25\n", ""), "conditions"),
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
            if let Ok(text) = String::from_utf8(bytes) && let Ok(tuning) = parse(&text, &machine()) {
                prop_assert_eq!(tuning.constants.check(), Ok(()));
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
        for _ in 0..2 {
            store(&path, &measured(12.5), &machine()).unwrap();
            let loaded = load(&TuningSource::Named(path.clone()), machine);
            assert_eq!(loaded, Ok(Some((path.clone(), measured(12.5)))));
        }
        assert_eq!(fs::read_dir(folder.join("deep")).unwrap().count(), 1);
        fs::write(&path, [0xff; 10]).unwrap();
        assert!(
            load(&TuningSource::Named(path.clone()), machine).unwrap_err().contains("UTF-8 text")
        );
        fs::write(&path, vec![b'x'; 20_000]).unwrap();
        let error = load(&TuningSource::Named(path), machine).unwrap_err();
        assert!(error.contains("more than 16384 bytes"), "{error}");
        fs::remove_dir_all(folder).unwrap();
    }
}
