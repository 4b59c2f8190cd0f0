//! Numbers of ranks and of slots.

use super::*;

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
