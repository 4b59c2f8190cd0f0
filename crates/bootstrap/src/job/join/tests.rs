#![allow(non_snake_case, unsafe_code)]
//! Ranks that are threads, with an engine in the same process. What they have of their own as processes (network
//! namespaces) is tested by tests/hosts.

mod counting;

use super::*;
use crate::engine::fake::{Manner, Server};
use crate::segment::{FailureKind, Phase, STATE_DEAD};
use std::fs::File;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering as Order};

const INNER: &str = "FASTPATH_TEST_INNER";

/// Whether this process runs that test alone, so that it may take all descriptors; else runs it in such a process.
pub(super) fn is_alone(test: &str) -> bool {
    if std::env::var_os(INNER).is_some() {
        return true;
    }
    let mut inner = Command::new(std::env::current_exe().unwrap());
    inner.args([test, "--nocapture"]).env(INNER, "1");
    let outcome = inner.output().unwrap();
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let errors = String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.status.success() && said.contains("1 passed"), "{said}{errors}");
    false
}

/// Takes all descriptors that this process may still open.
pub(super) fn take_descriptors() -> Vec<File> {
    // SAFETY: plain calls with a structure of theirs.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max.min(64);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

/// A name that no other test has.
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
    for manner in [Manner::Hydra, Manner::Slurm] {
        let server = Server::new(&job_name(), 5, manner);
        let jobs = join_all(&server, 5).into_iter().map(Result::unwrap);
        let jobs: Vec<&Job> = jobs.map(leak).collect();
        for (rank, job) in jobs.iter().enumerate() {
            assert_eq!((job.rank(), job.present(), job.appnum()), (rank, 5, Some(3)));
            assert_eq!(job.job_id(), jobs[0].job_id());
            assert_eq!((job.nodes(), job.node_place()), (1, (5, rank)));
            assert!(job.is_watched() && job.launcher().is_none());
            assert!(job.listener().is_none(), "nobody listens on the network");
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

/// The leader waits for the others, so all do it at the same time.
fn leave_all(jobs: &[&'static Job]) {
    std::thread::scope(|scope| {
        for &job in jobs {
            job.watch().unwrap();
            scope.spawn(move || {
                job.set_phase(Phase::Finalized);
                job.leave();
            });
        }
    });
}

/// Ranks of several nodes: those of a node meet under a name of their own, as if their networks were apart.
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
    // In blocks, by turns, and alone.
    let rows: [(&[usize], usize); 4] =
        [(&[0, 0, 1, 1], 2), (&[0, 1, 2, 0, 1, 2, 0], 3), (&[0, 1], 2), (&[0, 1, 1, 1, 0], 2)];
    for (nodes, count) in rows {
        let server = Server::new(&job_name(), nodes.len(), Manner::Slurm);
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
fn job__of_one_rank_meets_nobody() {
    let server = Server::new(&job_name(), 1, Manner::Hydra);
    let job = leak(join_all(&server, 1).pop().unwrap().unwrap());
    assert_eq!((job.present(), job.appnum(), server.fences()), (1, Some(3), 0));
    leave_all(&[job]);
    assert_eq!(server.finalized(), 1);
}

#[test]
fn death__of_a_rank_is_recorded_and_ends_the_job() {
    let server = Server::new(&job_name(), 3, Manner::Hydra);
    let jobs = join_all(&server, 3).into_iter().map(Result::unwrap);
    let (leaders, mut members): (Vec<Job>, Vec<Job>) =
        jobs.partition(|job| job.own_page().leads.load(Ordering::Relaxed) == 1);
    let leader = leak(leaders.into_iter().next().unwrap());
    leader.watch().unwrap();
    // Its connection ends without a word; it had begun to exit.
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
    let server = Server::new(&name, 2, Manner::Hydra);
    let jobs = join_all(&server, 2).into_iter().map(Result::unwrap);
    let jobs: Vec<&Job> = jobs.map(leak).collect();
    let mut taken = take_descriptors();
    // A process that has come too late, and has no descriptor at the leader.
    taken.pop();
    let stranger = match channel::meet(&meeting) {
        Ok(Role::Member(stream)) => stream,
        other => panic!("{other:?}"),
    };
    // All of the job leave meanwhile, and are seen to.
    leave_all(&jobs);
    assert_eq!(server.finalized(), 2);
    assert_eq!(jobs[0].header().failure.load(), None);
    drop((stranger, taken));
}

#[test]
fn death__of_the_leader_is_seen_by_the_others() {
    let server = Server::new(&job_name(), 2, Manner::Hydra);
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
fn strangers__are_turned_away_and_hold_nobody_up() {
    let name = job_name();
    let meeting = name_meeting(&name, 2);
    let server = Server::new(&name, 2, Manner::Hydra);
    let connect = || match channel::meet(&meeting) {
        Ok(Role::Member(stream)) => stream,
        other => panic!("{other:?}"),
    };
    let jobs = std::thread::scope(|scope| {
        let first = scope.spawn(|| Job::join(Engine::Pmi1(server.connect(0))));
        // The first one has the name when it is in the fence.
        server.await_waiting(1);
        let strangers = [(); 4].map(|()| connect());
        let hello = |rank, size| Hello { rank, size, process: 9, processors: CpuSet::new() };
        let say = |i: usize, kind, body: &[u8]| send(&strangers[i], kind, body, None).unwrap();
        say(1, FrameKind::Hello, &hello(0, 2).encode());
        say(2, FrameKind::Hello, &hello(1, 3).encode());
        say(3, FrameKind::Bye, b"");
        let second = scope.spawn(|| Job::join(Engine::Pmi1(server.connect(1))));
        for (stranger, why) in
            strangers.iter().zip(["", "rank 0 already", "in a job of 2", "no rank"])
        {
            let told = expect(stranger, FrameKind::Welcome).unwrap_err().to_string();
            assert!(told.contains(why), "{told}");
        }
        [first, second].map(|one| leak(one.join().unwrap().unwrap()))
    });
    assert_eq!(jobs[1].rank_page(0).unwrap().phase(), Phase::Attached);
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
