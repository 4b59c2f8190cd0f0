//! Two ends of a connection in one process, over the loopback device.

use super::domain::{Domain, Settings};
use super::link::Stage;
use super::{TcpEndpoint, TcpIface};
use crate::contract::{Connection, Endpoint};
use fastpath_base::config::Config;
use fastpath_job::Job;

const ATTEMPTS: u32 = 2_000_000;

pub(crate) fn make_jobs(ranks: usize) -> Vec<&'static Job> {
    let jobs = Job::in_process(ranks).unwrap();
    let jobs: Vec<&'static Job> = jobs.into_iter().map(|job| &*Box::leak(Box::new(job))).collect();
    for job in &jobs {
        job.open_network(&Config::defaults()).unwrap();
    }
    jobs
}

pub(crate) fn make_iface(job: &'static Job, settings: Settings) -> TcpIface {
    TcpIface::new(Domain::new(job, settings).unwrap()).unwrap()
}

pub(crate) struct TcpPair {
    pub ends: [TcpEndpoint; 2],
    pub ifaces: [TcpIface; 2],
}

impl TcpPair {
    pub fn new(settings: Settings) -> Self {
        let jobs = make_jobs(2);
        let ifaces = [make_iface(jobs[0], settings), make_iface(jobs[1], settings)];
        let ends = [ifaces[0].endpoint(1), ifaces[1].endpoint(0)];
        let mut pair = TcpPair { ends, ifaces };
        pair.ends[0].connect();
        pair.until("a connection", |pair| pair.ends.iter().all(|end| end.link().is_up()));
        pair
    }

    pub fn limit_buffers(&mut self, bytes: usize) {
        for end in &self.ends {
            if let Stage::Up(socket) = &end.link().stage {
                socket.limit_buffers(bytes);
            }
        }
    }

    pub fn progress(&mut self) {
        for iface in &mut self.ifaces {
            iface.progress();
        }
    }

    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        for _ in 0..ATTEMPTS {
            if is_so(self) {
                return;
            }
            self.progress();
        }
        panic!("waited in vain for {what}");
    }

    pub fn settle(&mut self) {
        self.until("the network to come to rest", |pair| {
            pair.ends[1].look().is_some() || pair.ends[0].is_drained()
        });
        // One of the next calls reads the bytes that the kernel holds.
        for _ in 0..4 {
            self.progress();
        }
        self.ends[1].look();
    }

    pub fn observe(&mut self) -> Vec<u8> {
        let waiting = self.ends[0].link().outbox.rest().to_vec();
        let shown = self.ends[1].look().map(|arrival| (arrival.header.key, arrival.len()));
        [waiting, format!("{shown:?}").into_bytes()].concat()
    }
}
