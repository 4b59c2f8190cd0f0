#![allow(non_snake_case)]
//! Command lines: each option, each error, and lines from practice.

mod fuzz;
mod hosts;
mod typed;

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
fn ranks__by_every_name() {
    for line in ["-n 4 a", "-np 4 a", "--np 4 a", "-c 4 a", "--n=4 a"] {
        assert_eq!(spec(line).apps[0].ranks, 4, "{line}");
    }
    assert_eq!(spec("a").apps[0].ranks, 1);
}

#[test]
fn ranks__bad_numbers_are_refused() {
    for line in
        ["-n 0 a", "-n -1 a", "-n x a", "-n 1.5 a", "-n 99999999999999999999 a", "-n 1048577 a"]
    {
        assert!(error(line).contains("number of ranks"), "{line}");
    }
    assert!(error("-n 8192 a : -n 1 b").contains("has at most 8192"));
    assert!(
        error("-n 1048576 a : -n 1 b")
            .contains("1048577 ranks are too many: a job has at most 1048576")
    );
    assert!(error("--host b:8193 a").contains("has at most 8192"));
    let several = spec("--host b:8192,c:8000 a").nodes;
    assert!(matches!(several, JobNodes::Several(nodes) if nodes[0].ranks == 8192));
    assert!(error("-n").contains("needs a value"));
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
fn program__keeps_its_own_options() {
    let s = spec("-n 2 prog -n 3 -l --help");
    assert_eq!(s.apps[0].argv, ["prog", "-n", "3", "-l", "--help"]);
    assert!(s.output.prefix.is_empty());
    assert_eq!(spec("-n 2 -- -odd").apps[0].argv, ["-odd"]);
}

#[test]
fn agent__reads_what_was_typed() {
    let words = ["-n", "2", "a", "::x", ":", "-n", "1", "b", "::"].map(OsString::from);
    let told = write_agent_words(&words).collect::<Vec<_>>();
    assert_eq!(told, ["-n", "2", "a", "::x", "::", "-n", "1", "b", ":::"]);
    let told = [AGENT.into(), "2,1/2,1".into()].into_iter().chain(told);
    let Ok(CommandRequest::Run(spec)) = parse_args(told, &TestNode(&[])) else { panic!("no job") };
    assert_eq!(spec.apps[0].argv, ["a", "::x"]);
    assert_eq!(spec.apps[1].argv, ["b", "::"]);
    assert_eq!(spec.nodes, JobNodes::Agent(vec![2, 1]));
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
    assert!(s.report_bindings);
    assert_eq!(s.output.prefix, b"[%r] ");
    assert_eq!(s.timeout, Some(Duration::from_millis(1500)));
    assert_eq!(s.placement.bind, Bind::To(Level::Numa));
    for (text, ms) in
        [("2s", 2000), ("1m", 60_000), ("1.5h", 5_400_000), ("1e1", 10_000), ("250ms", 250)]
    {
        assert_eq!(spec(&format!("--timeout={text} a")).timeout, Some(Duration::from_millis(ms)));
    }
    assert_eq!(spec("--kill-after 3m a").kill_after, Some(Duration::from_secs(180)));
    for line in [
        "--timeout 0 a",
        "--timeout -1 a",
        "--timeout nan a",
        "--timeout 1e300 a",
        "--timeout 1d a",
    ] {
        assert!(error(line).contains("seconds"), "{line}");
    }
    assert!(error("--bind-to moon a").contains("none, hwthread, core"));
    assert!(error("-l=1 a").contains("unknown"));
    assert!(error("--tag-output=1 a").contains("no value"));
}

#[test]
fn timeout__is_the_variable_of_other_launchers_by_default() {
    let timeout = |line: &str, value: &str| {
        let variables = [("MPIEXEC_TIMEOUT", value)];
        match parse_within(line, &variables) {
            Ok(CommandRequest::Run(spec)) => spec.timeout,
            other => panic!("{line}: {other:?}"),
        }
    };
    assert_eq!(timeout("a", "2"), Some(Duration::from_secs(2)));
    assert_eq!(timeout("a", "1m"), Some(Duration::from_secs(60)));
    assert_eq!(timeout("--timeout 5 a", "2"), Some(Duration::from_secs(5)));
    assert_eq!(timeout("--agent 1/1 a", "2"), None);
    let refused = parse_within("a", &[("MPIEXEC_TIMEOUT", "soon")]).unwrap_err();
    assert!(
        refused.to_string().contains("MPIEXEC_TIMEOUT soon: the value must be a number of seconds"),
        "{refused}"
    );
}

#[test]
fn ranks__of_a_node() {
    for line in ["-ppn 4 a", "-perhost 4 a", "-N 4 a", "--npernode 4 a", "--map-by ppr:4:node a"] {
        assert_eq!(spec(line).apps[0].ranks, 4, "{line}");
    }
    assert_eq!(spec("--pernode a").apps[0].ranks, 1);
    assert_eq!(spec("--npersocket 3 a").apps[0].ranks, 6);
    assert_eq!(spec("--ppr 1:core a").apps[0].ranks, 8);
    assert_eq!(spec("--map-by ppr:2:package:pe=2 a").apps[0].ranks, 4);
    // All 8 ranks run on the only node, as with Hydra. Open MPI rejects this command line.
    let s = spec("-n 8 -ppn 4 a");
    assert_eq!(s.apps[0].ranks, 8);
    assert_eq!(s.notices, ["-ppn 4: no effect (all ranks run on one host)"]);
    for line in ["-n 8 -N 4 a", "-n 8 --map-by ppr:4:node a", "-n 5 --npersocket 2 a"] {
        assert!(error(line).contains("on each of 1 host;"), "{line}");
    }
    assert_eq!(spec("-n 4 -ppn 4 a").notices, Vec::<String>::new());
    assert!(error("-ppn x a").contains("-ppn x: the value must be a number of ranks"));
}

#[test]
fn soft__takes_the_largest_number() {
    for (line, ranks) in [
        ("-soft 2:8:2 a", 8),
        ("-n 7 -soft 2:8:2 a", 6),
        ("-n 7 -soft 1,3,9 a", 3),
        ("-n 9 -soft 8:2:-3 a", 8),
        ("-n 7 -soft 8:2:-3 a", 5),
        ("-soft -4:4 a", 4),
        ("-soft 5 a", 5),
    ] {
        assert_eq!(spec(line).apps[0].ranks, ranks, "{line}");
    }
    assert!(error("-n 1 -soft 2:8:2 a").contains("no number of ranks up to 1"));
    for bad in ["", "x", "1:2:0", "1:2:3:4", "1:", "9223372036854775807:1:-9223372036854775808"] {
        let words = ["-soft", bad, "a"].map(OsString::from);
        assert!(parse_args(words, &TestNode(&[])).is_err(), "{bad}");
    }
}

#[test]
fn oversubscription__is_refused_where_asked() {
    for option in ["--nooversubscribe", "--map-by core:NOOVERSUBSCRIBE"] {
        assert!(
            error(&format!("{option} -n 17 a"))
                .contains("17 ranks are more than 16 processors; use fewer")
        );
        assert!(
            error(&format!("{option} -n 3 -H localhost:2 a"))
                .contains("3 ranks are more than 2 slots;")
        );
        assert!(
            error(&format!("{option} -n 3 -H localhost:1 a"))
                .contains("3 ranks are more than 1 slot;")
        );
        assert_eq!(spec(&format!("{option} -n 16 a")).apps[0].ranks, 16);
    }
    assert_eq!(spec("-n 99 --map-by :OVERSUBSCRIBE a").apps[0].ranks, 99);
}

#[test]
fn oversubscription__is_told_where_slots_were_named() {
    let told = |line: &str| spec(line).notices;
    let [notice] = &told("--host localhost:2 -n 3 a")[..] else {
        panic!("{:?}", told("--host localhost:2 -n 3 a"));
    };
    assert!(notice.starts_with(
        "the job has 3 ranks, but its hosts have 2 slots, so ranks share processors. "
    ));
    for line in [
        "--host localhost:2 -n 2 a",
        "--host localhost -n 3 a",
        "--host localhost:2 --oversubscribe -n 3 a",
        "--host localhost:2 --map-by :OVERSUBSCRIBE -n 3 a",
        "--host localhost:2,other:2 -ppn 4 -n 8 a",
        "-n 99 a",
    ] {
        assert_eq!(told(line), Vec::<String>::new(), "{line}");
    }
}

#[test]
fn placement__in_the_words_of_others() {
    let place = |line: &str| spec(&format!("{line} a")).placement;
    let bound = |level| Bind::To(level);
    for (word, level) in [
        ("hwthread", Level::Thread),
        ("HWT", Level::Thread),
        ("core", Level::Core),
        ("l1cache", Level::Cache(1)),
        ("L2", Level::Cache(2)),
        ("l3cache", Level::Cache(3)),
        ("l3ucache", Level::Cache(3)),
        ("numa", Level::Numa),
        ("socket", Level::Package),
        ("package", Level::Package),
        ("board", Level::Node),
        ("machine", Level::Node),
    ] {
        assert_eq!(place(&format!("--bind-to {word}")).bind, bound(level), "{word}");
        assert_eq!(place(&format!("--map-by {word}")).map, Some((level, 1)), "{word}");
    }
    assert_eq!(place("-bind-to none").bind, Bind::None);
    let p = place("-bind-to core:2");
    assert_eq!((p.bind, p.per_rank), (bound(Level::Core), Some(2)));
    let p = place("--bind-to core:overload-allowed:if-supported");
    assert!(p.overload && p.if_supported);
    let cpus = ["0,2", "1", "4-7"].map(|l| CpuSet::parse(l).unwrap());
    assert_eq!(place("-bind-to user:0+2,1,4-7").bind, Bind::Cpus(cpus.to_vec()));
    assert_eq!(place("--use-hwthread-cpus"), place("--map-by :HWTCPUS"));
    assert_eq!(place("--cpus-per-proc 4").per_rank, Some(4));
    let p = place("--map-by ppr:2:socket:PE=3:SPAN");
    assert_eq!((p.map, p.in_a_row, p.per_rank), (Some((Level::Package, 1)), 2, Some(3)));
    assert_eq!(place("--map-by core:2").map, Some((Level::Core, 2)));
    assert_eq!(place("--map-by slot:pe=4").map, None);
    for (word, rank) in [
        ("slot", RankOrder::Fill),
        ("fill", RankOrder::Fill),
        ("core", RankOrder::Fill),
        ("node", RankOrder::Mapped),
        ("span", RankOrder::Round(None)),
        ("socket:span", RankOrder::Round(Some(Level::Package))),
        ("numa", RankOrder::Round(Some(Level::Numa))),
    ] {
        assert_eq!(place(&format!("--rank-by {word}")).rank, rank, "{word}");
    }
    assert_eq!(spec("--cpu-set 0-3,8 a").cpus, CpuSet::parse("0-3,8"));
    let s = spec("--map-by pe-list=1,3:ordered a");
    let cpus = [1, 3].map(|cpu| CpuSet::from_iter([cpu]));
    assert_eq!(s.placement.bind, Bind::Cpus(cpus.to_vec()));
    for (line, part) in [
        ("--bind-to core:many", "a number of places"),
        ("--bind-to user:", "user:0+2"),
        ("--bind-to l9cache", "socket (or package), node (or machine, board) or user:LIST"),
        ("--map-by ppr:2", "ppr:N:PLACE"),
        ("--map-by core:pe=x", "pe=N"),
        ("--map-by slot:2", "the number 2 is allowed only after one of"),
        ("--map-by moon", "slot, ppr:N:PLACE"),
        ("--rank-by moon", "slot, fill, span"),
        ("--cpu-set 3-1", "list of processors, such as"),
        ("--ppr 2", "N:PLACE"),
    ] {
        assert!(error(&format!("{line} a")).contains(part), "{line}");
    }
}

#[test]
fn places__of_the_help_are_all_known() {
    let names = place::levels!().replace(['(', ')'], ",").replace("or ", "");
    let names: Vec<&str> = names.split(',').map(str::trim).filter(|n| !n.is_empty()).collect();
    assert!(names.contains(&"board"), "{names:?}");
    for name in names {
        assert!(place::find_level(name).is_some(), "{name}");
    }
}

#[test]
fn variables__that_are_passed_on() {
    let only = |names: &[&str]| Inherit::Only(names.iter().map(OsString::from).collect());
    assert_eq!(spec("-genvlist A,B -genvlist C a").inherit, only(&["A", "B", "C"]));
    assert_eq!(spec("-genvnone a").inherit, only(&[]));
    assert_eq!(spec("-genvnone -genvall a").inherit, Inherit::All);
    assert_eq!(spec("-genvexcl A a").inherit, Inherit::Except(vec!["A".into()]));
    let s = spec("-genvnone -envall a : -envlist X b : c");
    let inherit: Vec<Option<Inherit>> = s.apps.into_iter().map(|a| a.inherit).collect();
    assert_eq!(inherit, [Some(Inherit::All), Some(only(&["X"])), None]);
}

#[test]
fn output__to_files_by_every_name() {
    let files = |line: &str| {
        let output = spec(&format!("{line} a")).output;
        let text = output.files.map(|f| String::from_utf8(f.unwrap_or_default()).unwrap());
        (text[0].clone(), text[1].clone(), output.copy)
    };
    let of = |out: &str, err: &str, copy| (out.to_owned(), err.to_owned(), copy);
    assert_eq!(files("-outfile-pattern o.%r"), of("o.%r", "", false));
    assert_eq!(files("-outfile o -errfile-pattern e"), of("o", "e", false));
    let dir = of("d/1/rank.%R/stdout", "d/1/rank.%R/stderr", true);
    assert_eq!(files("--output-filename d"), dir);
    assert_eq!(files("--output dir=d"), dir);
    let alone = of("d/rank.%R/stdout", "d/rank.%R/stderr", false);
    assert_eq!(files("--output-directory d:nojobid,nocopy"), alone);
    assert_eq!(files("--output file=5%:NOCOPY"), of("5%%.%R.out", "5%%.%R.err", false));
    let output = spec("--output tag,timestamp,merge a").output;
    assert_eq!(output.prefix, b"[%r] %T ");
    assert!(output.merge && output.files == [None, None]);
    assert_eq!(spec("-prepend-pattern %r: a").output.prefix, b"%r:");
    for line in ["--output moon a", "--output dir= a", "--output-filename d:moon a"] {
        assert!(error(line).contains("use "), "{line}: {}", error(line));
    }
}

#[test]
fn stdin__of_whom() {
    assert_eq!(spec("-n 4 a").stdin, Stdin::Ranks(vec![0]));
    assert_eq!(spec("-n 4 --stdin all a").stdin, Stdin::All);
    assert_eq!(spec("-n 4 -s none a").stdin, Stdin::Ranks(vec![]));
    assert_eq!(spec("-n 4 -s 1,2-3 a").stdin, Stdin::Ranks(vec![1, 2, 3]));
    assert!(error("-n 4 --stdin 4 a").contains("there is no rank 4; the job has 4 ranks"));
    assert!(error("-s moon a").contains("all, none or ranks"));
}

#[test]
fn config_file__holds_programs() {
    let s = spec("-genv G 1 -l -configfile programs");
    assert_eq!(s.apps.len(), 2);
    assert_eq!(s.apps[0].argv, ["first", "a b"]);
    assert_eq!(s.apps[0].env, [pair("A", "1")]);
    assert_eq!(
        (s.apps[1].ranks, &s.apps[1].argv[..]),
        (3, &["second", "-n", "2"].map(OsString::from)[..])
    );
    assert_eq!(s.env, [pair("G", "1")]);
    assert_eq!(spec("-configfile programs : -configfile programs").apps.len(), 4);
    let several = spec("--host b:2,c:2 -configfile programs").nodes;
    assert!(
        matches!(several, JobNodes::Several(nodes) if nodes.len() == 2 && nodes[0].name == "b")
    );
    for (line, part) in [
        ("-configfile none", "-configfile none: "),
        ("-configfile empty", "contains no program"),
        ("-configfile programs -n 2", "must be in the file"),
        ("-configfile programs a", "must be in the file"),
        ("-configfile again", "again line 1: -configfile is not allowed in a file of programs"),
        ("-configfile quote", "quote line 2: a quotation mark is not closed"),
    ] {
        assert!(error(line).contains(part), "{line}: {}", error(line));
    }
}

#[test]
fn folders__of_all_programs_and_of_one() {
    let s = spec("-gwdir /g -gpath /p a : -wdir /w -path /q b");
    let folders = s.apps.iter().map(|a| (a.wdir.clone().unwrap(), a.path.clone().unwrap()));
    let wanted = [("/g", "/p"), ("/w", "/q")].map(|(w, p)| (PathBuf::from(w), OsString::from(p)));
    assert_eq!(folders.collect::<Vec<_>>(), wanted);
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
fn universe__is_what_usize_or_slots_give() {
    let universe = |line: &str| spec(line).universe;
    assert_eq!(universe("-n 2 a"), None);
    assert_eq!(universe("-n 2 --host localhost a"), None);
    assert_eq!(universe("-usize 12 -n 2 a"), Some(12));
    assert_eq!(universe("--host localhost:12 -n 1 a"), Some(12));
    assert_eq!(universe("--host localhost:3,localhost:4 -n 1 a : -n 1 b"), Some(7));
    assert_eq!(universe("-usize 5 --host localhost:12 -n 1 a"), Some(5));
    assert_eq!(universe("-usize SYSTEM --host localhost:12 -n 1 a"), Some(12));
    assert_eq!(universe("-usize infinite -n 1 a"), Some(MAX_JOB_RANKS));
    assert!(
        error("-usize many a").contains("-usize many: unknown value; use a number of processes")
    );
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

#[test]
fn tool__is_taken_for_its_ranks() {
    let tools = |words: &[&str]| {
        let words = words.iter().chain(&["-n", "4", "a"]).map(OsString::from);
        match parse_args(words, &TestNode(&[])) {
            Ok(CommandRequest::Run(spec)) => Ok(*spec),
            Err(e) => Err(e.to_string()),
            other => panic!("{other:?}"),
        }
    };
    let tool = |words: &str, ranks: Option<&str>| RankTool {
        words: words.split(' ').map(OsString::from).collect(),
        ranks: ranks.map(|list| CpuSet::parse(list).unwrap()),
    };
    let found = tools(&["-gtool", "gdb -q:0; valgrind --log=a:b 'c d':1,3"]).unwrap().tools;
    let second = RankTool {
        words: vec!["valgrind".into(), "--log=a:b".into(), "c d".into()],
        ..tool("", Some("1,3"))
    };
    assert_eq!(found, [tool("gdb -q --args", Some("0")), second]);
    assert!(found[1].has_rank(3) && !found[1].has_rank(2));
    let all = tools(&["-gtool", "/opt/gdb --args:all"]).unwrap();
    assert_eq!(all.tools, [tool("/opt/gdb --args", None)]);
    let file = tools(&["-gtoolfile", "tools"]).unwrap();
    assert_eq!(file.tools, [tool("time", Some("0")), tool("perf stat", Some("2-3"))]);
    let gdb = tools(&["-gdb"]).unwrap();
    assert_eq!(gdb.tools, [tool("gdb -q --args", None)]);
    assert_eq!((gdb.stdin, &gdb.output.prefix[..]), (Stdin::All, &b"[%r] "[..]));
    for (value, cause) in [
        ("gdb", "use TOOL:RANKS"),
        ("gdb:x", "use TOOL:RANKS"),
        (":0", "use TOOL:RANKS"),
        (" ; ", "needs a tool and its ranks"),
        ("a 'b:0", "quotation mark"),
        ("gdb:0=attach", "attach is not supported"),
        ("gdb:4", "there is no rank 4; the job has 4 ranks"),
        ("gdb:0-1;time:1", "rank 1 has two tools"),
    ] {
        let told = tools(&["-gtool", value]).unwrap_err();
        assert!(told.contains(cause), "{value}: {told}");
    }
    let told = tools(&["-gtoolfile", "nowhere"]).unwrap_err();
    assert!(told.starts_with("-gtoolfile nowhere: "), "{told}");
}
