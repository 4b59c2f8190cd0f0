#![allow(non_snake_case)]
//! Command lines: each option, each error, and lines from practice.

mod fuzz;
mod hosts;
mod placement;
mod programs;
mod ranks;
mod typed;
mod whole_job;

use super::*;
use fastpath_base::topology::CpuSet;
use fastpath_segment::MAX_JOB_RANKS;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

/// A node called node7.example with 8 cores of two threads on two sockets, some files, and these variables.
struct TestNode<'a>(&'a [(&'a str, &'a str)]);

impl Surroundings for TestNode<'_> {
    fn is_here(&self, name: &str) -> bool {
        ["localhost", "127.0.0.1", "::1", "node7", "node7.example"].contains(&name)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let text = match path.to_str() {
            Some("hosts") => "localhost\n",
            Some("hosts4") => "# ours\nlocalhost slots=4 max_slots=8\n",
            Some("machines") => "node7:2\nnode7:3\n",
            Some("cluster") => "node7 slots=2\nnode8 slots=2\n",
            Some("empty") => "# nothing\n",
            Some("programs") => "# two\n-n 1 -env A 1 first 'a b'\n\n-n 3 \\\n  second -n 2\n",
            Some("again") => "--configfile again\n",
            Some("tools") => "time:0\nperf stat:2-3\n",
            Some("quote") => "-n 1 a\n-n 1 'a\n",
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(text.as_bytes().to_vec())
    }

    fn variable(&self, name: &str) -> Option<String> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    }

    fn count(&self, level: Level) -> usize {
        match level {
            Level::Thread => 16,
            Level::Core => 8,
            Level::Package => 2,
            _ => 1,
        }
    }
}

fn parse(line: &str) -> Result<CommandRequest, UsageError> {
    parse_within(line, &[])
}

fn parse_within(line: &str, variables: &[(&str, &str)]) -> Result<CommandRequest, UsageError> {
    parse_args(line.split_whitespace().map(OsString::from), &TestNode(variables))
}

fn spec(line: &str) -> JobSpec {
    match parse(line) {
        Ok(CommandRequest::Run(spec)) => *spec,
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
fn completions__are_accepted() {
    for option in generate::proposed() {
        let generate::Values::Words(words) = generate::complete(option.takes) else { continue };
        let name = option.names.split(' ').next().unwrap();
        for word in words.split(' ').filter(|word| !word.ends_with('=')) {
            spec(&format!("{name} {word} a"));
        }
    }
}

#[test]
fn idle_options__are_one_line_for_each_reason() {
    let s = spec(
        "--mca btl self --mca btl self --mca pml ob1 -iface ib0 -rmk user -nolocal -bootstrap ssh a",
    );
    assert_eq!(s.notices.len(), 4, "{:?}", s.notices);
    assert!(s.notices[0].starts_with("--mca btl self, --mca pml ob1: no effect ("));
    assert!(s.notices[2].starts_with("-rmk user, -nolocal: no effect ("));
    assert_eq!(s.notices[3], "-bootstrap ssh: no effect (all ranks run on this host)");
    let many: String = (0..9).map(|n| format!("--mca p{n} 1 ")).collect();
    assert!(spec(&format!("{many} a")).notices[0].contains("--mca p3 1 and 5 more: no effect"));
    for quiet in ["-q", "-quiet", "--quiet"] {
        let s = spec(&format!("--mca a b {quiet} a"));
        assert_eq!((s.notices.len(), &s.apps[0].argv[..]), (0, &["a".into()][..]), "{quiet}");
    }
    assert!(error("--mca btl").contains("--mca needs two values"));
}

#[test]
fn every_option__is_accepted_with_one_dash_and_with_two() {
    for option in super::table::SECTIONS.iter().flat_map(|s| s.options) {
        for name in option.names.split(' ') {
            let bare = name.trim_start_matches('-');
            for dashes in ["-", "--"] {
                let name = format!("{dashes}{bare}");
                let values: &[&str] = match option.takes {
                    super::table::OptionArguments::Nothing => &[],
                    super::table::OptionArguments::One(_) => &["1"],
                    _ => &["A", "1"],
                };
                let words = [&[name.as_str()], values, &["prog"]].concat();
                let outcome = parse_args(words.iter().map(OsString::from), &TestNode(&[]));
                let text = outcome.map_or_else(|e| e.to_string(), |_| String::new());
                assert!(
                    !text.contains("unknown option") && !text.contains("needs"),
                    "{name}: {text}"
                );
                assert!(!text.contains("no program"), "{name} takes other words: {text}");
            }
        }
    }
}

#[test]
fn unknown_option__names_the_nearest() {
    assert!(error("--bindto core a").contains("option --bindto; did you mean --bind-to?"));
    assert!(error("-zzzzzzz a").contains("unknown option -zzzzzzz "));
    assert!(error("--hostfil x a").contains("did you mean --hostfile?"));
    assert!(error("-genvlst A a").contains("did you mean -genvlist?"));
    assert!(error("-np4 a").contains("did you mean -np 4?"));
    assert!(error("--frob a").contains("unknown option --frob (mpiexec"));
    assert!(error("--hots x a").contains("did you mean --host?"));
    assert!(error(&format!("-{} a", "n".repeat(100_000))).contains("unknown option"));
    assert!(error("--host").contains("--host needs a value"));
}

#[test]
fn help_and_version__win() {
    assert_eq!(parse("--help"), Ok(CommandRequest::Help));
    assert_eq!(parse("-n 2 --version"), Ok(CommandRequest::Version));
}

#[test]
fn words_that_are_no_text__pass_through() {
    let odd = OsString::from_vec(vec![b'-', 0xff]);
    assert!(parse_args([odd.clone()], &TestNode(&[])).is_err());
    let Ok(CommandRequest::Run(s)) = parse_args(["a".into(), odd.clone()], &TestNode(&[])) else {
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
    for n in 0..pool.len().pow(4) {
        let word = |k: u32| OsString::from(pool[n / pool.len().pow(k) % pool.len()]);
        let _ = parse_args((0..4).map(word), &TestNode(&[]));
    }
}

#[test]
fn unknown_words__are_refused_with_those_that_are_known() {
    for (line, part) in [
        ("--display foo", "\"foo\" is unknown; use map, map-devel, bind"),
        ("--display map,foo", "\"foo\" is unknown"),
        ("-outfile-pattern o.%z", "%z is unknown; use %r, %R, %h"),
        ("-errfile-pattern e.%z", "%z is unknown"),
        ("-prepend-pattern %z:", "%z is unknown"),
    ] {
        let said = error(&format!("{line} a"));
        assert!(said.starts_with(line) && said.contains(part), "{said}");
    }
    assert!(spec("--display MAP,bindings,allocation a").show_map);
    let typed = spec("--cpus-per-proc 5 a").placement.per_rank_typed;
    assert_eq!(typed.as_deref(), Some("--cpus-per-proc 5"));
}
