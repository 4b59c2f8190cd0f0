//! Hosts on the command line, in files and from a batch system.

use super::*;

#[test]
fn hosts__of_this_node_need_no_engine() {
    assert_eq!(spec("--host localhost:3 a").apps[0].ranks, 3);
    assert_eq!(spec("-host localhost,node7:2 a").apps[0].ranks, 3);
    assert_eq!(spec("-n 5 --host localhost:2 a").apps[0].ranks, 5);
    assert_eq!(spec("-host localhost,node7:2 a").nodes, JobNodes::Here);
    assert!(error("--host localhost:x a").contains("number of ranks"));
    assert!(error("--host localhost:0 a").contains("number of ranks"));
}

fn nodes(line: &str) -> Vec<(String, usize)> {
    nodes_within(line, &[])
}

fn nodes_within(line: &str, variables: &[(&str, &str)]) -> Vec<(String, usize)> {
    match parse_within(line, variables) {
        Ok(CommandRequest::Run(spec)) => match spec.nodes {
            JobNodes::Several(nodes) => nodes.into_iter().map(|n| (n.name, n.ranks)).collect(),
            other => panic!("{line}: {other:?}"),
        },
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn hosts__share_the_ranks() {
    let expected = |list: &[(&str, usize)]| -> Vec<(String, usize)> {
        list.iter().map(|&(name, n)| (name.to_owned(), n)).collect()
    };
    for (line, list) in [
        ("--host far:2 a", &[("far", 2)][..]),
        ("--host node7:2,far:3 a", &[("node7", 2), ("far", 3)]),
        ("-n 4 --host x,y a", &[("x", 2), ("y", 2)]),
        ("-n 5 --host x:2,y:1 a", &[("x", 4), ("y", 1)]),
        ("-n 3 --host x:4,y:4 a", &[("x", 3)]),
        ("-ppn 2 --host x,y a", &[("x", 2), ("y", 2)]),
        ("-n 3 -ppn 2 --host x:8,y:8 a", &[("x", 2), ("y", 1)]),
        ("-n 4 --host x,x,y a", &[("x", 3), ("y", 1)]),
        ("-f cluster a", &[("node7", 2), ("node8", 2)]),
        ("-n 1 --host x a : -n 1 --host y b", &[("x", 1), ("y", 1)]),
    ] {
        assert_eq!(nodes(line), expected(list), "{line}");
    }
    assert!(error("-N 1 -n 3 --host x,y a").contains("-N 1 allows 1 on each of 2 hosts"));
}

#[test]
fn agent__is_of_all_ranks() {
    let line = "--agent 2,1 -n 3 --host x:2,y a";
    assert_eq!(spec(line).nodes, JobNodes::Agent(vec![2, 1]));
    assert!(error("--agent 2,2 -n 3 a").contains("are 4, but the job has 3 ranks"));
    // The numbers of ranks in `--agent` take precedence over the allocation that the agent sees.
    let told = spec("--agent 2,2/1,3 -ppn 2 a :: b");
    assert_eq!(told.nodes, JobNodes::Agent(vec![2, 2]));
    assert_eq!(told.apps.iter().map(|app| app.ranks).collect::<Vec<_>>(), [1, 3]);
    assert!(error("--hostfile none a").contains("none"));
    let elsewhere = spec("--agent 2,2/4 --hostfile none a");
    assert_eq!(elsewhere.nodes, JobNodes::Agent(vec![2, 2]));
    assert!(error("--agent 2,2/1,2 a :: b").contains("are 4, but the job has 3 ranks"));
    assert!(error("--agent 2,2/x a").contains("must list the number of ranks"));
    assert!(error("--agent 2,x -n 3 a").contains("must list the number of ranks"));
}

#[test]
fn allocation__of_slurm_says_how_many_ranks_a_node_gets() {
    let read = |text| {
        let nodes = crate::args::hosts::read_tasks(text)?;
        Some(nodes.iter().map(|node| node.ranks).collect::<Vec<_>>())
    };
    assert_eq!(read("2"), Some(vec![2]));
    assert_eq!(read("2(x3),1"), Some(vec![2, 2, 2, 1]));
    for text in ["", "0", "2(x", "2(x-1)", "2(x99999999)", "a(x2)"] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn allocation__is_taken_where_no_host_is_named() {
    let slurm = [("SLURM_JOB_NUM_NODES", "2"), ("SLURM_TASKS_PER_NODE", "2(x2)")];
    let unnamed = |counts: &[usize]| counts.iter().map(|&n| (String::new(), n)).collect::<Vec<_>>();
    assert_eq!(nodes_within("a", &slurm), unnamed(&[2, 2]));
    assert_eq!(nodes_within("-n 3 a", &slurm), unnamed(&[2, 1]));
    assert_eq!(nodes_within("--host x,y a", &slurm), [("x".to_owned(), 1), ("y".to_owned(), 1)]);
    let kubernetes = [("HYDRA_HOST_FILE", "cluster")];
    let named = ["node7", "node8"].map(|name| (name.to_owned(), 2));
    assert_eq!(nodes_within("a", &kubernetes), named);
    assert_eq!(nodes_within("-n 4 a", &kubernetes), named);
}

#[test]
fn hostfile__gives_ranks_and_limits() {
    for option in ["--hostfile", "-f", "-machinefile", "--machinefile", "--default-hostfile"] {
        assert_eq!(spec(&format!("{option} machines a")).apps[0].ranks, 5, "{option}");
    }
    assert_eq!(spec("-f hosts4 a").apps[0].ranks, 4);
    assert_eq!(spec("-f hosts a").apps[0].ranks, 1);
    assert_eq!(spec("-f hosts4 -n 8 a").apps[0].ranks, 8);
    assert_eq!(spec("-f hosts4 -H localhost:2 a").apps[0].ranks, 2);
    assert!(error("-f hosts4 -n 9 a").contains("9 ranks are too many: hosts4 allows 8"));
    assert!(error("-f empty a").contains("-f empty: the file contains no host"));
    assert!(error("-f none a").contains("-f none: "));
}
