//! Programs of a job: their words, folders, files and tools.

use super::*;

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
fn missing_program__is_reported_with_a_value_that_may_be_the_program() {
    for (line, wanted) in [
        ("-n 4", "no program given; add a program after the options"),
        ("--bind-to=core", "no program given; add a program after the options"),
        ("-n 4 -q", "no program given; add a program after the options"),
        (
            "-n 2 -x ./hello",
            "no program given: ./hello is the value of -x; add a program after the options",
        ),
        (
            "--outfile ./hello",
            "no program given: ./hello is the value of --outfile; add a program after the options",
        ),
        (
            "-n 2 a :",
            "no program given; add a program after the options, on both sides of each `:`",
        ),
    ] {
        assert_eq!(error(line), wanted, "{line}");
    }
}

#[test]
fn virtual_host__is_of_one_program() {
    let s = spec("--virtual-host x -n 2 a : b : --virtual-host=y c");
    let hosts: Vec<Option<&OsStr>> = s.apps.iter().map(|a| a.virtual_host.as_deref()).collect();
    assert_eq!(hosts, [Some(OsStr::new("x")), None, Some(OsStr::new("y"))]);
    assert!(error("--virtual-host= a").contains("needs a name"));
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
