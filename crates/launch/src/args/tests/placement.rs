//! Placement and binding of ranks.

use super::*;

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
