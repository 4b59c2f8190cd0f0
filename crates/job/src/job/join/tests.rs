#![allow(non_snake_case, unsafe_code)]
//! Tests with ranks as threads, and with an engine in the process. tests/hosts tests what needs processes, such as
//! network namespaces.

mod counting;

use super::*;
use crate::engine::fake::{ReplyStyle, Server};
use crate::node::tests::{is_alone, take_descriptors};
use fastpath_segment::{FailureKind, RankPhase, STATE_DEAD};
use std::sync::atomic::{AtomicUsize, Ordering as Order};

/// Returns a name that no other test has.
fn job_name() -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Order::Relaxed);
    format!("kvs_{}_{number}", std::process::id())
}

fn join_all(server: &Server, ranks: usize) -> Vec<Result<Job, BootstrapError>> {
    std::thread::scope(|scope| {
        let join = |rank| Job::join(Engine::Pmi1(server.connect(rank)));
        let all: Vec<_> = (0..ranks).map(|r| scope.spawn(move || join(r))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

fn leak(job: Job) -> &'static Job {
    Box::leak(Box::new(job))
}

#[test]
fn ranks__of_one_host_share_memory_after_one_fence() {
    for manner in [ReplyStyle::Hydra, ReplyStyle::Slurm] {
        let server = Server::new(&job_name(), 5, manner);
        let jobs = join_all(&server, 5).into_iter().map(Result::unwrap);
        let jobs: Vec<&Job> = jobs.map(leak).collect();
        for (rank, job) in jobs.iter().enumerate() {
            assert_eq!((job.rank(), job.present(), job.appnum()), (rank, 5, Some(3)));
            assert_eq!(job.job_id(), jobs[0].job_id());
            assert_eq!((job.nodes(), job.node_place()), (1, (5, rank)));
            assert!(job.is_watched() && job.launcher().is_none());
            assert!(job.listener().is_none(), "no listener on the network");
            assert!((0..5).all(|peer| !job.is_remote(peer)));
        }
        let word = &jobs[4].own_page().polls;
        word.store(77, Ordering::Relaxed);
        let seen = jobs[0].rank_page(4).unwrap();
        assert_eq!(seen.polls.load(Ordering::Relaxed), 77);
        assert_eq!(jobs[0].header().awake.load(Ordering::Relaxed), 5);
        assert_eq!((server.fences(), server.gets()), (1, 0));
        leave_all(&jobs);
        assert_eq!(server.finalized(), 5);
    }
}

/// Calls [`Job::leave`] on all ranks at the same time, because the leader waits for the others.
fn leave_all(jobs: &[&'static Job]) {
    std::thread::scope(|scope| {
        for &job in jobs {
            job.watch().unwrap();
            scope.spawn(move || {
                job.set_phase(RankPhase::Finalized);
                job.leave();
            });
        }
    });
}

/// Joins ranks of several nodes. Ranks of one node meet under their own name, as if networks were separate.
fn join_on_nodes(server: &Server, nodes: &[usize]) -> Vec<&'static Job> {
    let name = job_name();
    std::thread::scope(|scope| {
        let join = |rank: usize| {
            let meeting = name_meeting(&format!("{name}-{}", nodes[rank]), nodes.len());
            leak(Job::join_at(Engine::Pmi1(server.connect(rank)), &meeting).unwrap())
        };
        let all: Vec<_> = (0..nodes.len()).map(|r| scope.spawn(move || join(r))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn nodes__learn_of_each_other_by_one_card_each() {
    // The rows place ranks in blocks, round robin, and alone on a node.
    let rows: [(&[usize], usize); 4] =
        [(&[0, 0, 1, 1], 2), (&[0, 1, 2, 0, 1, 2, 0], 3), (&[0, 1], 2), (&[0, 1, 1, 1, 0], 2)];
    for (nodes, count) in rows {
        let server = Server::new(&job_name(), nodes.len(), ReplyStyle::Slurm);
        let jobs = join_on_nodes(&server, nodes);
        assert_eq!((server.fences(), server.gets()), (2, count * (count - 1)));
        for (rank, job) in jobs.iter().enumerate() {
            assert_eq!((job.rank(), job.present(), job.nodes()), (rank, nodes.len(), count));
            assert_eq!(job.job_id(), jobs[0].job_id());
            assert_eq!(job.header().job_id.load(Ordering::Relaxed), job.job_id());
            assert_eq!(job.secret(), jobs[0].secret());
            let here = nodes.iter().filter(|&&node| node == nodes[rank]).count();
            assert_eq!(job.node_place().0, here);
            for (peer, &node) in nodes.iter().enumerate() {
                assert_eq!(job.host(peer) as usize, node);
                assert_eq!(job.is_remote(peer), node != nodes[rank]);
                let port = jobs[peer].listener().unwrap().port();
                assert_eq!(job.network_card(peer).unwrap().port, port);
            }
        }
        leave_all(&jobs);
    }
}

#[test]
fn job__of_one_rank__needs_no_fence() {
    let server = Server::new(&job_name(), 1, ReplyStyle::Hydra);
    let job = leak(join_all(&server, 1).pop().unwrap().unwrap());
    assert_eq!((job.present(), job.appnum(), server.fences()), (1, Some(3), 0));
    leave_all(&[job]);
    assert_eq!(server.finalized(), 1);
}

#[test]
fn death__of_a_rank_is_recorded_and_ends_the_job() {
    let server = Server::new(&job_name(), 3, ReplyStyle::Hydra);
    let jobs = join_all(&server, 3).into_iter().map(Result::unwrap);
    let (leaders, mut members): (Vec<Job>, Vec<Job>) =
        jobs.partition(|job| job.own_page().leads.load(Ordering::Relaxed) == 1);
    let leader = leak(leaders.into_iter().next().unwrap());
    leader.watch().unwrap();
    // The connection of this rank ends without a message, after the rank has begun to exit.
    let dead = members.pop().unwrap();
    let rank = dead.rank();
    dead.own_page().exit_status.store(7 + 1, Ordering::Relaxed);
    drop(dead);
    assert_eq!(server.await_abort(), 7);
    let failure = leader.header().failure.load();
    assert_eq!(failure, Some((FailureKind::Exit, rank, 7)));
    let page = leader.rank_page(rank).unwrap();
    assert_eq!(page.state.load(Ordering::Relaxed), STATE_DEAD);
    assert!(leader.has_failed());
    std::mem::forget(members);
}

#[test]
fn watch__goes_on_where_no_descriptor_is_left() {
    if !is_alone("watch__goes_on_where_no_descriptor_is_left") {
        return;
    }
    let name = job_name();
    let meeting = name_meeting(&name, 2);
    let server = Server::new(&name, 2, ReplyStyle::Hydra);
    let jobs = join_all(&server, 2).into_iter().map(Result::unwrap);
    let jobs: Vec<&Job> = jobs.map(leak).collect();
    let mut taken = take_descriptors();
    // This process connects too late, and the leader has no free descriptor for its connection.
    taken.pop();
    let stranger = match channel::meet(&meeting) {
        Ok(NodeRole::Member(stream)) => stream,
        other => panic!("{other:?}"),
    };
    // All ranks of the job leave during this time, and the leader serves them.
    leave_all(&jobs);
    assert_eq!(server.finalized(), 2);
    assert_eq!(jobs[0].header().failure.load(), None);
    drop((stranger, taken));
}

#[test]
fn death__of_the_leader_is_seen_by_the_others() {
    let server = Server::new(&job_name(), 2, ReplyStyle::Hydra);
    let jobs = join_all(&server, 2).into_iter().map(Result::unwrap);
    let (leaders, members): (Vec<Job>, Vec<Job>) =
        jobs.partition(|job| job.own_page().leads.load(Ordering::Relaxed) == 1);
    let rank = leaders[0].rank();
    let member = leak(members.into_iter().next().unwrap());
    member.watch().unwrap();
    drop(leaders);
    assert_eq!(server.await_abort(), 1);
    let failure = member.header().failure.load();
    assert_eq!(failure, Some((FailureKind::Gone, rank, 1)));
}

#[test]
fn strangers__are_rejected_without_delaying_ranks() {
    let name = job_name();
    let meeting = name_meeting(&name, 2);
    let server = Server::new(&name, 2, ReplyStyle::Hydra);
    let connect = || match channel::meet(&meeting) {
        Ok(NodeRole::Member(stream)) => stream,
        other => panic!("{other:?}"),
    };
    let jobs = std::thread::scope(|scope| {
        let first = scope.spawn(|| Job::join(Engine::Pmi1(server.connect(0))));
        // The first rank has the name when it is in the fence.
        server.await_waiting(1);
        let strangers = [(); 4].map(|()| connect());
        let hello = |rank, size| Hello { rank, size, process: 9, processors: CpuSet::new() };
        let say = |i: usize, kind, body: &[u8]| send(&strangers[i], kind, body, None).unwrap();
        say(1, FrameKind::Hello, &hello(0, 2).encode());
        say(2, FrameKind::Hello, &hello(1, 3).encode());
        say(3, FrameKind::Bye, b"");
        let second = scope.spawn(|| Job::join(Engine::Pmi1(server.connect(1))));
        for (stranger, why) in
            strangers.iter().zip(["", "rank 0 already", "in a job of 2", "not a rank"])
        {
            let told = expect(stranger, FrameKind::Welcome).unwrap_err().to_string();
            assert!(told.contains(why), "{told}");
        }
        [first, second].map(|one| leak(one.join().unwrap().unwrap()))
    });
    assert_eq!(jobs[1].rank_page(0).unwrap().phase(), RankPhase::Attached);
    leave_all(&jobs);
}

#[test]
fn name__is_of_the_user_the_job_and_its_size() {
    let name = name_meeting("kvs_1_0", 4);
    assert_eq!(name, name_meeting("kvs_1_0", 4));
    assert_ne!(name, name_meeting("kvs_1_1", 4));
    assert_ne!(name, name_meeting("kvs_1_0", 5));
    assert!(name_meeting(&"x".repeat(256), 8192).len() < 100);
}
