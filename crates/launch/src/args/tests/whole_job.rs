//! Options of the whole job: environment, time limit, input and output.

use super::*;

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
    let zero = error("--timeout 0 a");
    assert!(zero.starts_with("--timeout 0: the value must be above 0; omit --timeout"), "{zero}");
    for line in [
        "--timeout -1 a",
        "--kill-after -1 a",
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
