//! Settings: the `FASTPATH_` variables and their values.
//!
//! One table ([`VARIABLES`]) is the source of the help, the listing with origins, the checks and the warnings about
//! unknown names. Parsing never panics.

mod parse;
mod table;

pub use parse::{parse_bytes, parse_count, parse_duration_ns, parse_flag, parse_size};
use table::REMOVED;
pub use table::{FEATURES, Key, VARIABLES, ValueKind, Variable, WAIT_MODES};

use std::ffi::OsString;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Prefix of every variable.
pub const PREFIX: &str = "FASTPATH_";

/// Source of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The default of the table.
    Default,
    /// The environment.
    Environment,
    /// The program, by a control variable of the tool interface ([`set`]).
    Program,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Default => "default",
            Origin::Environment => "environment",
            Origin::Program => "program",
        })
    }
}

/// A checked value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigValue {
    /// On or off.
    Flag(bool),
    /// Bytes, nanoseconds or a count, as the variable's kind requires. `None` means "auto".
    Number(Option<u64>),
    /// Index into the choices of the kind.
    Choice(usize),
    /// Words of a list, in the order given.
    List(Vec<String>),
    /// Free text; empty when not set.
    Text(String),
}

/// A variable with its value, for `fastpath info`.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Row of the table.
    pub variable: &'static Variable,
    /// Value as written.
    pub text: String,
    /// Parsed value.
    pub value: ConfigValue,
    /// Source of the value.
    pub origin: Origin,
}

/// Settings made by the program. They override the environment.
static SET_BY_PROGRAM: Mutex<Vec<Setting>> = Mutex::new(Vec::new());

/// Sets a variable for every configuration read later in this process.
///
/// # Errors
/// `text` is not a value of the variable.
pub fn set(key: Key, text: &str) -> Result<(), ConfigError> {
    let variable = &VARIABLES[key as usize];
    let value = parse::parse_value(&variable.kind, text).map_err(|reason| ConfigError {
        name: variable.name.to_owned(),
        text: text.to_owned(),
        reason,
    })?;
    let mut set = SET_BY_PROGRAM.lock().unwrap_or_else(PoisonError::into_inner);
    set.retain(|setting| setting.variable.key != key);
    set.push(Setting { variable, text: text.to_owned(), value, origin: Origin::Program });
    Ok(())
}

/// A rejected value. The text names the variable, the value and what is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Name of the variable.
    pub name: String,
    /// Value as written.
    pub text: String,
    /// Cause and accepted values.
    pub reason: String,
}

const SHOWN: usize = 80;

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}: {}", self.name, shorten(&self.text), self.reason)
    }
}

impl std::error::Error for ConfigError {}

/// All settings of one process.
#[derive(Clone, Debug)]
pub struct Config {
    settings: Vec<Setting>,
    warnings: Vec<String>,
}

fn may_be_empty(index: usize) -> bool {
    !matches!(VARIABLES[index].kind, ValueKind::BytesOrAuto)
}

impl Config {
    /// Reads the environment of this process.
    ///
    /// # Errors
    /// The first variable whose value is rejected.
    pub fn from_env() -> Result<Config, ConfigError> {
        let mut config = Config::from_pairs(std::env::vars_os())?;
        let set = SET_BY_PROGRAM.lock();
        for setting in set.unwrap_or_else(PoisonError::into_inner).iter() {
            config.settings[setting.variable.key as usize] = setting.clone();
        }
        Ok(config)
    }

    /// Returns the defaults.
    pub fn defaults() -> Config {
        let settings = VARIABLES.iter().map(default_setting).collect();
        Config { settings, warnings: Vec::new() }
    }

    /// Reads pairs of name and value. Names without the prefix are skipped; an empty value counts as not set.
    ///
    /// # Errors
    /// The first variable whose value is rejected.
    pub fn from_pairs<I>(pairs: I) -> Result<Config, ConfigError>
    where
        I: IntoIterator<Item = (OsString, OsString)>,
    {
        let mut config = Config::defaults();
        for (name, text) in pairs {
            let Some(name) = name.to_str().filter(|n| n.starts_with(PREFIX)) else {
                continue;
            };
            let text = text.to_string_lossy();
            match VARIABLES.iter().position(|v| v.name == name) {
                None => config.warnings.push(unknown_warning(name)),
                Some(index) if text.is_empty() && may_be_empty(index) => {}
                Some(index) => {
                    let variable = &VARIABLES[index];
                    let value = parse::parse_value(&variable.kind, &text).map_err(|reason| {
                        ConfigError {
                            name: name.to_owned(),
                            text: text.clone().into_owned(),
                            reason,
                        }
                    })?;
                    if let ValueKind::SizeWithin(least, most) = variable.kind
                        && let ConfigValue::Number(Some(bytes)) = value
                        && !(least..=most).contains(&bytes)
                    {
                        let taken = bytes.clamp(least, most);
                        let shown = shorten(&text);
                        config.warnings.push(format!(
                            "{name}={shown} is out of range ({least} to {most} bytes): {taken} \
                             bytes are used"
                        ));
                    }
                    config.settings[index] = Setting {
                        variable,
                        text: text.into_owned(),
                        value,
                        origin: Origin::Environment,
                    };
                }
            }
        }
        config.warnings.sort();
        Ok(config)
    }

    /// Returns warnings, one line each. A warning names an unknown variable with the prefix and the most similar known
    /// name, or a size out of range. One rank prints the warnings once.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns every variable that is not internal, in the table's order.
    pub fn listing(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter().filter(|s| !s.variable.internal)
    }

    /// Returns the setting of one variable.
    pub fn setting(&self, key: Key) -> &Setting {
        &self.settings[key as usize]
    }

    /// Returns whether a flag is on; false for a variable that is not a flag.
    pub fn flag(&self, key: Key) -> bool {
        matches!(self.setting(key).value, ConfigValue::Flag(true))
    }

    /// Returns bytes, nanoseconds or a count. `None` for "auto", and for a variable that is not a number.
    pub fn number(&self, key: Key) -> Option<u64> {
        match self.setting(key).value {
            ConfigValue::Number(n) => n,
            _ => None,
        }
    }

    /// Returns the chosen word; empty for a variable that is not a choice.
    pub fn choice(&self, key: Key) -> &'static str {
        let setting = self.setting(key);
        match (&setting.value, &setting.variable.kind) {
            (ConfigValue::Choice(i), ValueKind::Choice(words) | ValueKind::FlagOr(words)) => {
                words.get(*i).copied().unwrap_or("")
            }
            _ => "",
        }
    }

    /// Returns the words of a list, in the order given.
    pub fn list(&self, key: Key) -> &[String] {
        match &self.setting(key).value {
            ConfigValue::List(words) => words,
            _ => &[],
        }
    }

    /// Returns free text; empty when not set.
    pub fn text(&self, key: Key) -> &str {
        match &self.setting(key).value {
            ConfigValue::Text(text) => text,
            _ => "",
        }
    }

    /// Returns the adapter named by `FASTPATH_DEVICE`; `None` if the library chooses.
    pub fn device(&self) -> Option<&str> {
        Some(self.text(Key::Device)).filter(|name| !["", "auto"].contains(name))
    }

    /// Returns the target of the profile that `FASTPATH_PROFILE` requests; `None` if no profile is requested.
    pub fn profile(&self) -> Option<ProfileTarget<'_>> {
        let text = self.text(Key::Profile);
        match parse_flag(text) {
            Ok(true) => Some(ProfileTarget::StandardError),
            Err(_) if !text.is_empty() => Some(ProfileTarget::Files(text)),
            _ => None,
        }
    }

    /// Returns whether `FASTPATH_DISABLE` switches off `feature`, one of [`FEATURES`].
    pub fn is_disabled(&self, feature: &str) -> bool {
        debug_assert!(FEATURES.contains(&feature), "{feature} is not in the table");
        self.list(Key::Disable).iter().any(|w| w == feature)
    }

    /// Returns how a rank waits.
    pub fn wait_mode(&self) -> WaitMode {
        match self.choice(Key::Wait) {
            "spin" => WaitMode::Spin,
            "yield" => WaitMode::Yield,
            "sleep" => WaitMode::Sleep,
            _ => WaitMode::Auto,
        }
    }
}

/// Value of `FASTPATH_PROFILE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileTarget<'a> {
    /// Text on standard error.
    StandardError,
    /// Files whose names begin with this path.
    Files(&'a str),
}

/// File name of the profiling library, in the folder of the MPI library.
pub const PROFILE_LIBRARY: &str = "libfastpath_profile.so";

/// Value of `FASTPATH_WAIT`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitMode {
    /// Spin, yield, then sleep. Each stage lasts as long as it pays off on this machine.
    #[default]
    Auto,
    /// Only spin. For ranks with dedicated cores.
    Spin,
    /// Yield between polls; never sleep.
    Yield,
    /// Sleep at once.
    Sleep,
}

fn default_setting(variable: &'static Variable) -> Setting {
    // A test checks every default against its kind, so the fallback is never used.
    let value = parse::parse_value(&variable.kind, variable.default)
        .unwrap_or(ConfigValue::Text(String::new()));
    Setting { variable, text: variable.default.to_owned(), value, origin: Origin::Default }
}

/// Returns the text of a variable for a message. A text of more than 80 characters is cut, and its length is appended.
pub fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

fn unknown_warning(name: &str) -> String {
    if let Some((name, instead)) = REMOVED.iter().find(|(removed, _)| *removed == name) {
        return format!("{name} is ignored, because this variable was removed: {instead}");
    }
    let shown = shorten(name);
    let nearest = VARIABLES
        .iter()
        .filter(|v| !v.internal && name.len() <= SHOWN)
        .map(|v| (strsim::damerau_levenshtein(v.name, name), v.name))
        .min()
        .filter(|(distance, near)| *distance <= (near.len() - PREFIX.len()) / 2);
    match nearest {
        Some((_, near)) => {
            format!(
                "{shown} is ignored: Fastpath has no variable of this name; the nearest is {near}"
            )
        }
        None => format!(
            "{shown} is ignored: Fastpath has no variable of this name; `fastpath info` lists the \
             variables"
        ),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::from_pairs(pairs.iter().map(|(n, v)| (OsString::from(n), OsString::from(v))))
    }

    #[test]
    fn defaults__fit_their_kinds() {
        for variable in VARIABLES {
            parse::parse_value(&variable.kind, variable.default)
                .unwrap_or_else(|e| panic!("{}: {e}", variable.name));
        }
    }

    #[test]
    fn table__is_in_the_order_of_its_keys() {
        for (i, variable) in VARIABLES.iter().enumerate() {
            assert_eq!(variable.key as usize, i, "{}", variable.name);
            assert!(variable.name.starts_with(PREFIX));
        }
    }

    #[test]
    fn profile__has_a_target_unless_empty_or_off() {
        let c = |text| read(&[("FASTPATH_PROFILE", text)]).unwrap();
        assert_eq!((c("").profile(), c("0").profile(), c("off").profile()), (None, None, None));
        assert_eq!(c("1").profile(), Some(ProfileTarget::StandardError));
        assert_eq!(c("out/run").profile(), Some(ProfileTarget::Files("out/run")));
    }

    #[test]
    fn environment__overrides_the_default() {
        let c = read(&[("FASTPATH_WAIT", "yield"), ("PATH", "/bin")]).unwrap();
        assert_eq!(c.wait_mode(), WaitMode::Yield);
        assert_eq!(c.setting(Key::Wait).origin, Origin::Environment);
        assert_eq!(c.setting(Key::Report).origin, Origin::Default);
        assert!(c.warnings().is_empty());
    }

    #[test]
    fn size__outside_its_bounds_is_told_with_what_counts() {
        for (text, taken) in [("1", "48"), ("1T", "65536"), ("0", "48")] {
            let c = read(&[("FASTPATH_EAGER_MAX", text)]).unwrap();
            let [warning] = c.warnings() else { panic!("{text}: {:?}", c.warnings()) };
            assert!(
                warning.starts_with(&format!("FASTPATH_EAGER_MAX={text} is out of range ")),
                "{warning}"
            );
            assert!(warning.ends_with(&format!(": {taken} bytes are used")), "{warning}");
        }
        for text in ["48", "64K", "auto"] {
            assert!(read(&[("FASTPATH_EAGER_MAX", text)]).unwrap().warnings().is_empty());
        }
    }

    #[test]
    fn long_text__is_never_repeated_whole() {
        let long = "x".repeat(120_000);
        for variable in VARIABLES {
            if let Err(error) = read(&[(variable.name, &long)]) {
                let said = error.to_string();
                assert!(said.len() < 600, "{}: {} characters", variable.name, said.len());
            }
        }
        let name = format!("FASTPATH_{long}");
        assert!(read(&[(&name, "1")]).unwrap().warnings()[0].len() < 300);
        assert!(shorten(&"\u{e9}".repeat(200)).ends_with("... (400 bytes)"));
        assert_eq!(shorten("short"), "short");
    }

    #[test]
    fn unknown_name__warns_with_the_nearest() {
        let c = read(&[("FASTPATH_WIAT", "spin")]).unwrap();
        assert_eq!(c.warnings().len(), 1);
        assert!(c.warnings()[0].contains("FASTPATH_WAIT"), "{}", c.warnings()[0]);
    }

    #[test]
    fn removed_name__warns_with_what_holds_instead() {
        let c = read(&[("FASTPATH_WORKERS", "several")]).unwrap();
        assert!(
            c.warnings()[0]
                .starts_with("FASTPATH_WORKERS is ignored, because this variable was removed: "),
            "{:?}",
            c.warnings()
        );
    }

    #[test]
    fn internal_name__is_neither_warned_about_nor_listed() {
        let c = read(&[("FASTPATH_INTERNAL_JOB", "fd=3")]).unwrap();
        assert!(c.warnings().is_empty());
        assert!(c.listing().all(|s| s.variable.name != "FASTPATH_INTERNAL_JOB"));
    }

    #[test]
    fn malformed_value__is_refused_with_its_name() {
        let e = read(&[("FASTPATH_EAGER_MAX", "64Q")]).unwrap_err();
        assert!(e.to_string().contains("FASTPATH_EAGER_MAX=64Q"), "{e}");
        let e = read(&[("FASTPATH_WAIT", "spni")]).unwrap_err();
        assert!(e.to_string().contains("spin"), "{e}");
        let e = read(&[("FASTPATH_DISABLE", "sendi,warp")]).unwrap_err();
        assert!(e.to_string().contains("warp"), "{e}");
    }

    #[test]
    fn trace_events__are_as_many_as_a_ring_can_hold() {
        let of = |value| read(&[("FASTPATH_TRACE_EVENTS", value)]);
        for (text, events) in [("1", 1), ("1048576", 1 << 20)] {
            assert_eq!(of(text).unwrap().number(Key::TraceEvents), Some(events));
        }
        for text in ["0", "1048577", "-1", "2M"] {
            let e = of(text).unwrap_err().to_string();
            assert!(e.contains("from 1 to 1048576"), "{e}");
        }
    }

    #[test]
    fn report__is_off_on_or_a_form() {
        let of = |value| {
            let c = read(&[("FASTPATH_REPORT", value)]).unwrap();
            (c.flag(Key::Report), c.choice(Key::Report))
        };
        assert_eq!(of("1"), (true, ""));
        assert_eq!((of("0"), of("")), ((false, ""), (false, "")));
        assert_eq!(of("JSON"), (false, "json"));
        assert_eq!(of("selection"), (false, "selection"));
        let e = read(&[("FASTPATH_REPORT", "xml")]).unwrap_err();
        assert!(e.to_string().contains("json"), "{e}");
    }

    #[test]
    fn device__is_a_name_or_the_librarys_choice() {
        let of = |text| read(&[("FASTPATH_DEVICE", text)]).unwrap();
        assert_eq!(of("mlx5_0:1").device(), Some("mlx5_0:1"));
        assert_eq!((of("").device(), of("auto").device()), (None, None));
        assert_eq!(read(&[]).unwrap().device(), None);
    }

    #[test]
    fn disable__takes_a_list() {
        let c = read(&[("FASTPATH_DISABLE", "sendi, cma")]).unwrap();
        assert!(c.is_disabled("sendi") && c.is_disabled("cma") && !c.is_disabled("recvi"));
    }

    #[test]
    fn max_inline__is_decimal_bytes_or_refused_with_the_reason() {
        let read = |text: &str| read(&[("FASTPATH_MAX_INLINE", text)]);
        let good = [
            ("0", Some(0)),
            ("400", Some(400)),
            ("0400", Some(400)),
            ("1K", Some(1024)),
            ("2k", Some(2048)),
            ("1M", Some(1 << 20)),
            ("4294967295", Some(u32::MAX as u64)),
            ("auto", None),
        ];
        for (text, bytes) in good {
            assert_eq!(read(text).unwrap().number(Key::MaxInline), bytes, "{text}");
        }
        let long = "1".repeat(1000);
        let bad = [
            ("", "empty"),
            ("-1", "negative"),
            ("-", "negative"),
            ("K", "not a number"),
            ("0x190", "not a number"),
            ("4 00", "not a number"),
            ("+4", "not a number"),
            ("1.5K", "not a number"),
            ("12KK", "not a number"),
            ("400B", "not a number"),
            ("４００", "not a number"),
            ("4294967296", "too large"),
            ("4096M", "too large"),
            ("99999999999999999999K", "too large"),
            (&long, "too long"),
        ];
        for (text, why) in bad {
            let error = read(text).unwrap_err().to_string();
            let told = error.contains(why) && error.contains("FASTPATH_MAX_INLINE=");
            assert!(told && error.len() < 200, "{text:?}: {error}");
        }
    }

    #[test]
    fn empty_value__counts_as_not_set() {
        let c = read(&[("FASTPATH_EAGER_MAX", "")]).unwrap();
        assert_eq!(c.setting(Key::EagerMax).origin, Origin::Default);
    }

    #[test]
    fn bytes_that_are_no_text__do_not_panic() {
        use std::os::unix::ffi::OsStringExt;
        let odd = OsString::from_vec(vec![0xff, 0xfe]);
        let mut name = OsString::from("FASTPATH_");
        name.push(&odd);
        assert!(Config::from_pairs([(name, odd.clone())]).is_ok());
        assert!(Config::from_pairs([("FASTPATH_REPORT".into(), odd)]).is_err());
    }

    #[test]
    fn fuzz__environment_is_understood_or_refused() {
        let corpus: &[&[u8]] = &[
            b"FASTPATH_WAIT=spin",
            b"FASTPATH_DISABLE=sendi,recvi",
            b"FASTPATH_EAGER_MAX=64K",
            b"FASTPATH_PIPELINE_CHUNK=1.5 MiB",
            b"FASTPATH_SPIN=10us",
            b"FASTPATH_REPORT=yes",
            b"FASTPATH_TRANSPORTS=shm,loopback",
            b"FASTPATH_WIAT=spin",
            b"PATH=/bin",
        ];
        crate::mutate::run(corpus, |input| {
            use std::os::unix::ffi::OsStringExt;
            let pair = |line: &[u8]| {
                let at = line.iter().position(|&b| b == b'=').unwrap_or(line.len());
                let (name, text) = line.split_at(at);
                let text = text.get(1..).unwrap_or_default();
                (OsString::from_vec(name.to_vec()), OsString::from_vec(text.to_vec()))
            };
            match Config::from_pairs(input.split(|&b| b == b'\n').map(pair)) {
                Ok(config) => assert_eq!(config.settings.len(), VARIABLES.len()),
                Err(error) => assert!(error.name.starts_with(PREFIX) && !error.reason.is_empty()),
            }
            let text = String::from_utf8_lossy(input);
            if let Ok(bytes) = parse_size(&text) {
                assert!(bytes <= 1 << 63, "{text}");
            }
            let _ = (parse_duration_ns(&text), parse_count(&text), parse_flag(&text));
        });
    }
}
