//! The command line of `mpiexec`.
//!
//! Options are written the way MPI launchers have always taken them, with one dash or two;
//! everything from the first word that is no option belongs to the program, up to a lone `:`.

use fastpath_bootstrap::segment::MAX_RANKS;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

/// What the user wants.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// Run a job.
    Run(JobSpec),
    /// Print the help.
    Help,
    /// Print the version.
    Version,
}

/// A whole job.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct JobSpec {
    /// Its programs, in order; ranks are counted through.
    pub apps: Vec<App>,
    /// Variables set for all ranks.
    pub env: Vec<(OsString, OsString)>,
    /// Variables to be exported that the environment must have.
    pub exported: Vec<OsString>,
    /// Put the rank before each line.
    pub tag_output: bool,
    /// End the job after this time.
    pub timeout: Option<Duration>,
    /// How ranks are bound to processors.
    pub bind: Bind,
    /// Say how they are bound.
    pub report_bindings: bool,
}

/// One program of a job.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct App {
    /// How many ranks run it.
    pub ranks: usize,
    /// Program and arguments; the program comes first.
    pub argv: Vec<OsString>,
    /// Folder it starts in.
    pub wdir: Option<PathBuf>,
    /// Variables set for its ranks only.
    pub env: Vec<(OsString, OsString)>,
    /// Host that its ranks count as being on; none: the one of all that name none.
    pub virtual_host: Option<OsString>,
}

/// `--bind-to`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bind {
    /// To cores when more than one rank fits, else not.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// To cores, with a warning when they do not fit.
    Core,
    /// To NUMA nodes.
    Numa,
}

/// A command line that cannot be understood; the text says what and what would be right.
#[derive(Debug, PartialEq, Eq)]
pub struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn wrong<T>(text: String) -> Result<T, UsageError> {
    Err(UsageError(text))
}

/// One option: its names without dashes, and what it does.
struct Rule {
    names: &'static [&'static str],
    action: Action,
}

#[derive(Clone, Copy)]
enum Action {
    Ranks,
    Wdir,
    Export,
    Env,
    GlobalEnv,
    Tag,
    Timeout,
    BindTo,
    ReportBindings,
    Host,
    VirtualHost,
    /// Accepted for the sake of scripts; what it asks for is always so here.
    Nothing,
    Help,
    Version,
}

const RULES: &[Rule] = &[
    Rule {
        names: &["n", "np", "c"],
        action: Action::Ranks,
    },
    Rule {
        names: &["wdir", "wd"],
        action: Action::Wdir,
    },
    Rule {
        names: &["x"],
        action: Action::Export,
    },
    Rule {
        names: &["env"],
        action: Action::Env,
    },
    Rule {
        names: &["genv"],
        action: Action::GlobalEnv,
    },
    Rule {
        names: &["l", "tag-output", "prepend-rank"],
        action: Action::Tag,
    },
    Rule {
        names: &["timeout"],
        action: Action::Timeout,
    },
    Rule {
        names: &["bind-to"],
        action: Action::BindTo,
    },
    Rule {
        names: &["report-bindings"],
        action: Action::ReportBindings,
    },
    Rule {
        names: &["host", "hosts", "H"],
        action: Action::Host,
    },
    Rule {
        names: &["virtual-host"],
        action: Action::VirtualHost,
    },
    Rule {
        names: &["oversubscribe", "allow-run-as-root", "envall", "genvall"],
        action: Action::Nothing,
    },
    Rule {
        names: &["help", "h"],
        action: Action::Help,
    },
    Rule {
        names: &["version", "V"],
        action: Action::Version,
    },
];

/// Reads the words after the launcher's own name.
///
/// # Errors
/// What cannot be understood; nothing was started.
pub fn parse_args<I>(words: I, host_name: &str) -> Result<Request, UsageError>
where
    I: IntoIterator<Item = OsString>,
{
    let words: Vec<OsString> = words.into_iter().collect();
    if words.is_empty() {
        return wrong(
            "no program given; mpiexec -n N PROGRAM [ARGUMENTS] runs it on N ranks".into(),
        );
    }
    let mut spec = JobSpec::default();
    for part in words.split(|w| w == ":") {
        let mut parser = Parser {
            spec: &mut spec,
            app: App::default(),
            host_name,
            slots: 0,
        };
        if let Some(request) = parser.parse_part(part)? {
            return Ok(request);
        }
        let app = parser.finish()?;
        spec.apps.push(app);
    }
    let total = spec
        .apps
        .iter()
        .map(|a| a.ranks)
        .fold(0usize, usize::saturating_add);
    if total > MAX_RANKS {
        return wrong(format!(
            "{total} ranks: at most {MAX_RANKS} are possible on one node"
        ));
    }
    Ok(Request::Run(spec))
}

struct Parser<'a> {
    spec: &'a mut JobSpec,
    app: App,
    host_name: &'a str,
    slots: usize,
}

impl Parser<'_> {
    fn parse_part(&mut self, part: &[OsString]) -> Result<Option<Request>, UsageError> {
        let mut rest = part;
        while let Some((word, after)) = rest.split_first() {
            if word == "--" {
                rest = after;
                break;
            }
            if !word.as_bytes().starts_with(b"-") || word.len() == 1 {
                break;
            }
            rest = after;
            let (name, mut value) = split_option(word);
            let dashes = if word.as_bytes().starts_with(b"--") {
                "--"
            } else {
                "-"
            };
            let action = find_action(dashes, &name)?;
            match action {
                Action::Help => return Ok(Some(Request::Help)),
                Action::Version => return Ok(Some(Request::Version)),
                _ => {}
            }
            let takes_value = !matches!(
                action,
                Action::Tag | Action::ReportBindings | Action::Nothing
            );
            if takes_value && value.is_none() {
                let Some((next, after)) = rest.split_first() else {
                    return wrong(format!("{dashes}{name} needs a value after it"));
                };
                value = Some(next.clone());
                rest = after;
            } else if !takes_value && value.is_some() {
                return wrong(format!("{dashes}{name} takes no value"));
            }
            let value = value.unwrap_or_default();
            self.apply(action, &name, value, &mut rest)?;
        }
        self.app.argv = rest.to_vec();
        Ok(None)
    }

    fn apply(
        &mut self,
        action: Action,
        name: &str,
        value: OsString,
        rest: &mut &[OsString],
    ) -> Result<(), UsageError> {
        match action {
            Action::Ranks => self.app.ranks = parse_ranks(name, &value)?,
            Action::Wdir => self.app.wdir = Some(PathBuf::from(value)),
            Action::Export => match split_pair(&value) {
                Some(pair) => self.spec.env.push(pair),
                None => self.spec.exported.push(value),
            },
            Action::Env => {
                let pair = read_pair(name, value, rest)?;
                self.app.env.push(pair);
            }
            Action::GlobalEnv => {
                let pair = read_pair(name, value, rest)?;
                self.spec.env.push(pair);
            }
            Action::Tag => self.spec.tag_output = true,
            Action::Timeout => self.spec.timeout = Some(parse_timeout(&value)?),
            Action::BindTo => self.spec.bind = parse_bind(&value)?,
            Action::ReportBindings => self.spec.report_bindings = true,
            Action::VirtualHost if value.is_empty() => {
                return wrong(format!("--{name} needs a name"));
            }
            Action::VirtualHost => self.app.virtual_host = Some(value),
            Action::Host => self.slots += parse_hosts(&value, self.host_name)?,
            Action::Nothing | Action::Help | Action::Version => {}
        }
        Ok(())
    }

    fn finish(mut self) -> Result<App, UsageError> {
        if self.app.argv.is_empty() {
            return wrong("no program given (after the options, or beside a `:`)".into());
        }
        if self.app.ranks == 0 {
            // Like others, a list of hosts with slots says how many ranks there are.
            self.app.ranks = self.slots.max(1);
        }
        Ok(self.app)
    }
}

/// Takes the dashes off, and the value where it is written with `=`.
fn split_option(word: &OsStr) -> (String, Option<OsString>) {
    let bytes = word.as_bytes();
    let long = bytes.starts_with(b"--");
    let bare = &bytes[if long { 2 } else { 1 }..];
    match bare.iter().position(|&b| b == b'=') {
        Some(at) if long => {
            let name = String::from_utf8_lossy(&bare[..at]).into_owned();
            (name, Some(OsString::from_vec(bare[at + 1..].to_vec())))
        }
        _ => (String::from_utf8_lossy(bare).into_owned(), None),
    }
}

fn find_action(dashes: &str, name: &str) -> Result<Action, UsageError> {
    if let Some(rule) = RULES.iter().find(|r| r.names.contains(&name)) {
        return Ok(rule.action);
    }
    let near = RULES
        .iter()
        .flat_map(|r| r.names)
        .filter(|n| n.len() > 2)
        .map(|n| (strsim::damerau_levenshtein(n, name), *n))
        .min()
        .filter(|(distance, near)| *distance <= near.len() / 2);
    match near {
        Some((_, near)) => wrong(format!(
            "unknown option {dashes}{name}; is {dashes}{near} meant? (mpiexec --help lists all)"
        )),
        None => wrong(format!(
            "unknown option {dashes}{name} (mpiexec --help lists all)"
        )),
    }
}

fn parse_ranks(name: &str, value: &OsStr) -> Result<usize, UsageError> {
    match value.to_str().and_then(|t| t.parse::<usize>().ok()) {
        Some(n) if (1..=MAX_RANKS).contains(&n) => Ok(n),
        _ => wrong(format!(
            "-{name} {}: a number of ranks from 1 to {MAX_RANKS} is needed",
            value.display()
        )),
    }
}

/// Seconds, with a fraction if wanted.
fn parse_timeout(value: &OsStr) -> Result<Duration, UsageError> {
    value
        .to_str()
        .and_then(|t| t.strip_suffix('s').unwrap_or(t).parse::<f64>().ok())
        .filter(|s| *s > 0.0)
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .map_or_else(
            || {
                wrong(format!(
                    "--timeout {}: a number of seconds is needed",
                    value.display()
                ))
            },
            Ok,
        )
}

fn parse_bind(value: &OsStr) -> Result<Bind, UsageError> {
    match value.to_str() {
        Some("none") => Ok(Bind::None),
        Some("core") => Ok(Bind::Core),
        Some("numa") => Ok(Bind::Numa),
        _ => wrong(format!(
            "--bind-to {}: none, core or numa is possible",
            value.display()
        )),
    }
}

/// Reads `NAME[:SLOTS],...`; all of them must be this node. Returns the sum of the slots.
fn parse_hosts(value: &OsStr, host_name: &str) -> Result<usize, UsageError> {
    let text = value.to_string_lossy();
    let mut total = 0usize;
    for item in text.split(',').filter(|i| !i.is_empty()) {
        let (name, slots) = match item.rsplit_once(':') {
            Some((name, slots)) if !name.ends_with(':') => match slots.parse::<usize>() {
                Ok(n) if (1..=MAX_RANKS).contains(&n) => (name, n),
                _ => {
                    return wrong(format!(
                        "--host {item}: {slots:?} is no number of ranks from 1 to {MAX_RANKS}"
                    ));
                }
            },
            _ => (item, 1),
        };
        let short = host_name.split('.').next().unwrap_or(host_name);
        let known = ["localhost", "127.0.0.1", "::1", host_name, short];
        if !known.contains(&name) {
            return wrong(format!(
                "--host {name}: this release runs jobs on the node it is started on \
                 (localhost) only"
            ));
        }
        total += slots;
    }
    Ok(total)
}

fn split_pair(text: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = text.as_bytes();
    let at = bytes.iter().position(|&b| b == b'=')?;
    let part = |b: &[u8]| OsString::from_vec(b.to_vec());
    (at > 0).then(|| (part(&bytes[..at]), part(&bytes[at + 1..])))
}

/// `NAME VALUE` or `NAME=VALUE`.
fn read_pair(
    option: &str,
    name: OsString,
    rest: &mut &[OsString],
) -> Result<(OsString, OsString), UsageError> {
    if let Some(pair) = split_pair(&name) {
        return Ok(pair);
    }
    match rest.split_first() {
        Some((value, after)) if !name.is_empty() && !name.as_bytes().contains(&b'=') => {
            *rest = after;
            Ok((name, value.clone()))
        }
        _ => wrong(format!("-{option} needs a name and a value")),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Request, UsageError> {
        parse_args(line.split_whitespace().map(OsString::from), "node7.example")
    }

    fn spec(line: &str) -> JobSpec {
        match parse(line) {
            Ok(Request::Run(spec)) => spec,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn error(line: &str) -> String {
        parse(line).expect_err(line).to_string()
    }

    fn pair(name: &str, value: &str) -> (OsString, OsString) {
        (name.into(), value.into())
    }

    #[test]
    fn ranks__by_every_name() {
        for line in ["-n 4 a", "-np 4 a", "--np 4 a", "-c 4 a", "--n=4 a"] {
            assert_eq!(spec(line).apps[0].ranks, 4, "{line}");
        }
        assert_eq!(spec("a").apps[0].ranks, 1);
    }

    #[test]
    fn ranks__bad_numbers_are_refused() {
        for line in [
            "-n 0 a",
            "-n -1 a",
            "-n x a",
            "-n 1.5 a",
            "-n 99999999999999999999 a",
            "-n 16385 a",
        ] {
            assert!(error(line).contains("number of ranks"), "{line}");
        }
        assert!(error("-n 16384 a : -n 1 b").contains("16385 ranks"));
        assert!(error("-n").contains("needs a value"));
    }

    #[test]
    fn program__keeps_its_own_options() {
        let s = spec("-n 2 prog -n 3 -l --help");
        assert_eq!(s.apps[0].argv, ["prog", "-n", "3", "-l", "--help"]);
        assert!(!s.tag_output);
        assert_eq!(spec("-n 2 -- -odd").apps[0].argv, ["-odd"]);
    }

    #[test]
    fn program__must_be_there() {
        for line in ["", "-n 2", "-n 2 a :", ": a", "-n 1 a : : b"] {
            assert!(error(line).contains("no program"), "{line}");
        }
    }

    #[test]
    fn apps__are_separated_by_a_colon() {
        let s = spec("-n 1 -wdir /x a b:c : -n 2 -env K v d");
        assert_eq!(s.apps.len(), 2);
        assert_eq!(s.apps[0].argv, ["a", "b:c"]);
        assert_eq!(s.apps[0].wdir, Some(PathBuf::from("/x")));
        assert_eq!((s.apps[1].ranks, &s.apps[1].wdir), (2, &None));
        assert_eq!(s.apps[1].env, [pair("K", "v")]);
    }

    #[test]
    fn environment__in_every_form() {
        let s = spec("-x A=1 -x B -genv C 2 -genv D=3 -env E 4 a");
        assert_eq!(s.env, [pair("A", "1"), pair("C", "2"), pair("D", "3")]);
        assert_eq!(s.exported, ["B"]);
        assert_eq!(s.apps[0].env, [pair("E", "4")]);
        assert!(error("-genv A").contains("a name and a value"));
    }

    #[test]
    fn options__of_the_job() {
        let s = spec(
            "-l --timeout 1.5 --bind-to numa --report-bindings --oversubscribe --allow-run-as-root a",
        );
        assert!(s.tag_output && s.report_bindings);
        assert_eq!(s.timeout, Some(Duration::from_millis(1500)));
        assert_eq!(s.bind, Bind::Numa);
        assert_eq!(spec("--timeout=2s a").timeout, Some(Duration::from_secs(2)));
        for line in [
            "--timeout 0 a",
            "--timeout -1 a",
            "--timeout nan a",
            "--timeout 1e300 a",
        ] {
            assert!(error(line).contains("seconds"), "{line}");
        }
        assert!(error("--bind-to moon a").contains("none, core or numa"));
        assert!(error("-l=1 a").contains("unknown"));
        assert!(error("--tag-output=1 a").contains("no value"));
    }

    #[test]
    fn hosts__only_this_node() {
        assert_eq!(spec("--host localhost:3 a").apps[0].ranks, 3);
        assert_eq!(spec("-host localhost,node7:2 a").apps[0].ranks, 3);
        assert_eq!(spec("-n 5 --host localhost:2 a").apps[0].ranks, 5);
        assert!(error("--host far:2 a").contains("far"));
        assert!(error("--host localhost:x a").contains("number of ranks"));
        assert!(error("--host localhost:0 a").contains("number of ranks"));
    }

    #[test]
    fn virtual_host__is_of_one_program() {
        let s = spec("--virtual-host x -n 2 a : b : --virtual-host=y c");
        let hosts: Vec<Option<&OsStr>> = s.apps.iter().map(|a| a.virtual_host.as_deref()).collect();
        assert_eq!(hosts, [Some(OsStr::new("x")), None, Some(OsStr::new("y"))]);
        assert!(error("--virtual-host= a").contains("needs a name"));
    }

    #[test]
    fn unknown_option__names_the_nearest() {
        assert!(error("--bindto core a").contains("option --bindto; is --bind-to meant"));
        assert!(error("-zzzzzzz a").contains("unknown option -zzzzzzz "));
        assert!(error("--host").contains("--host needs a value"));
    }

    #[test]
    fn help_and_version__win() {
        assert_eq!(parse("--help"), Ok(Request::Help));
        assert_eq!(parse("-n 2 --version"), Ok(Request::Version));
    }

    #[test]
    fn words_that_are_no_text__pass_through() {
        let odd = OsString::from_vec(vec![b'-', 0xff]);
        assert!(parse_args([odd.clone()], "h").is_err());
        let Ok(Request::Run(s)) = parse_args(["a".into(), odd.clone()], "h") else {
            panic!()
        };
        assert_eq!(s.apps[0].argv[1], odd);
    }

    #[test]
    fn any_words__are_understood_or_refused() {
        let pool = [
            "-n",
            "2",
            "-",
            "--",
            ":",
            "-x",
            "A=",
            "=",
            "-env",
            "-genv",
            "--timeout",
            "inf",
            "-wdir",
            "--host",
            "localhost:",
            ":::",
            "a",
            "--n=",
            "-l",
            "--bind-to=core",
            "",
            "\u{e9}",
        ];
        // Every sequence of four words.
        for n in 0..pool.len().pow(4) {
            let word = |k: u32| OsString::from(pool[n / pool.len().pow(k) % pool.len()]);
            let _ = parse_args((0..4).map(word), "h");
        }
    }

    #[test]
    fn fuzz__command_lines_are_understood_or_refused() {
        let corpus: &[&[u8]] = &[
            b"-n 4 prog a b",
            b"-np 2 --timeout 1.5 prog : -n 3 other -x",
            b"--bind-to core -l -n 2 prog",
            b"-H node7,node7:4 prog",
            b"-env A B -genv C=D -n 1 prog",
            b"-x A=B -wdir /tmp -n 1 prog",
            b"--report-bindings --oversubscribe prog",
        ];
        crate::mutate::run(corpus, |input| {
            let words = input.split(|&b| b == b' ');
            let words = words.map(|word| OsString::from_vec(word.to_vec()));
            match parse_args(words, "node7.example") {
                Ok(Request::Run(spec)) => {
                    assert!(!spec.apps.is_empty() && spec.apps.iter().all(|a| !a.argv.is_empty()));
                    let ranks: usize = spec.apps.iter().map(|a| a.ranks).sum();
                    assert!((1..=MAX_RANKS).contains(&ranks));
                }
                Ok(_) => {}
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        });
    }
}
