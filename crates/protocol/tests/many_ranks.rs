//! Memory of ranks of a large job before they connect. The test has its own process, whose memory it measures.
#![allow(non_snake_case)]

use fastpath_base::config::Config;
use fastpath_job::Job;
use fastpath_protocol::Worker;
use fastpath_protocol::waiting::WaitPolicy;

/// Returns the bytes of this process's private memory, and of the shared memory that it has touched.
fn resident() -> [usize; 2] {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    ["RssAnon:", "RssShmem:"].map(|name| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        let kib = line.split_whitespace().nth(1).unwrap();
        kib.parse::<usize>().unwrap() * 1024
    })
}

#[test]
fn ranks_of_a_large_job__have_few_bytes_for_each_other() {
    const HERE: usize = 4;
    for ranks in [100_000, 1_000_000] {
        let [own, shared] = resident();
        let here: Vec<usize> = (ranks / 2..ranks / 2 + HERE).collect();
        let jobs: &'static [Job] = Job::on_one_node(&here, ranks).unwrap().leak();
        let policy = || WaitPolicy::of(&Config::defaults(), 2, None);
        let make = |job| Worker::new(job, policy()).unwrap();
        let workers: Vec<Worker> = jobs.iter().map(make).collect();
        let [own_after, shared_after] = resident();
        let per_rank = |bytes: usize| bytes as f64 / ranks as f64;
        let own = per_rank(own_after.saturating_sub(own)) / HERE as f64;
        let shared = per_rank(shared_after.saturating_sub(shared));
        let file = per_rank(jobs[0].segment().used_bytes().unwrap() as usize);
        println!(
            "{ranks} ranks, {HERE} of them here: {file:.1} B in the node's memory for each rank of \
             the job ({shared:.1} B touched by all), {own:.1} B in each rank"
        );
        assert!(file < 24.0 && own < 1.0, "{file} {own}");
        assert_eq!(workers.iter().map(Worker::present).sum::<u32>() as usize, HERE * ranks);
    }
}
