//! An engine inside the test's process: PMI-1 over socket pairs, one thread for each rank.

use super::Pmi1;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};

/// Style of the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStyle {
    Hydra,
    Slurm,
}

#[derive(Debug, Default)]
struct FakeState {
    values: HashMap<String, String>,
    services: HashMap<String, String>,
    waiting: usize,
    fences: usize,
    gets: usize,
    finalized: usize,
    aborted: Option<i32>,
}

/// Server of one job.
#[derive(Clone, Debug)]
pub struct Server {
    size: usize,
    manner: ReplyStyle,
    job: String,
    shared: Arc<(Mutex<FakeState>, Condvar)>,
}

impl Server {
    pub fn new(job: &str, size: usize, manner: ReplyStyle) -> Server {
        Server { size, manner, job: job.to_owned(), shared: Arc::default() }
    }

    /// Returns a connection for a rank, and starts its thread.
    pub fn connect(&self, rank: usize) -> Pmi1 {
        Pmi1::over(self.open(), rank, self.size).unwrap()
    }

    /// Returns the rank's end of a connection.
    pub fn open(&self) -> OwnedFd {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let server = self.clone();
        std::thread::spawn(move || server.serve(ours));
        theirs.into()
    }

    pub fn fences(&self) -> usize {
        self.shared.0.lock().unwrap().fences
    }

    /// Waits until `ranks` ranks are in a fence.
    pub fn await_waiting(&self, ranks: usize) {
        let (state, changed) = &*self.shared;
        let state = state.lock().unwrap();
        drop(changed.wait_while(state, |state| state.waiting < ranks));
    }

    pub fn gets(&self) -> usize {
        self.shared.0.lock().unwrap().gets
    }

    pub fn finalized(&self) -> usize {
        self.shared.0.lock().unwrap().finalized
    }

    pub fn await_abort(&self) -> i32 {
        let (state, changed) = &*self.shared;
        let state = state.lock().unwrap();
        let state = changed.wait_while(state, |state| state.aborted.is_none());
        state.unwrap().aborted.unwrap()
    }

    fn serve(&self, stream: UnixStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut stream = stream;
        while let Some(Ok(line)) = lines.next() {
            let fields: HashMap<&str, &str> =
                line.split(' ').filter_map(|word| word.split_once('=')).collect();
            let Some(answer) = self.answer(&fields) else {
                continue;
            };
            if stream.write_all((answer + "\n").as_bytes()).is_err() {
                return;
            }
        }
    }

    fn judge(&self, command: &str, is_done: bool) -> String {
        match (self.manner, is_done) {
            (ReplyStyle::Hydra, true) => format!("cmd={command} rc=0 msg=success"),
            (ReplyStyle::Hydra, false) => format!("cmd={command} rc=1 msg=no"),
            (ReplyStyle::Slurm, true) => format!("cmd={command} info=ok"),
            (ReplyStyle::Slurm, false) => format!("cmd={command} info=fail"),
        }
    }

    fn answer(&self, fields: &HashMap<&str, &str>) -> Option<String> {
        let tail = match self.manner {
            ReplyStyle::Hydra => " tag=0",
            ReplyStyle::Slurm => " msg=success",
        };
        let (state, changed) = &*self.shared;
        let mut state = state.lock().unwrap();
        Some(match fields["cmd"] {
            "init" => "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1".into(),
            "get_maxes" => "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024".into(),
            "get_my_kvsname" => format!("cmd=my_kvsname rc=0 kvsname={}", self.job),
            "get_appnum" => "cmd=appnum rc=0 appnum=3".into(),
            "get_universe_size" => match self.manner {
                ReplyStyle::Hydra => "cmd=universe_size rc=0 size=-1".into(),
                ReplyStyle::Slurm => format!("cmd=universe_size rc=0 size={}", self.size),
            },
            "put" => {
                let key = fields["key"].to_owned();
                assert!(key.len() <= 64);
                state.values.insert(key, fields["value"].to_owned());
                format!("cmd=put_result rc=0{tail}")
            }
            "get" => {
                state.gets += 1;
                match (state.values.get(fields["key"]), self.manner) {
                    (Some(value), _) => format!("cmd=get_result rc=0 value={value}"),
                    (None, ReplyStyle::Hydra) => "cmd=get_result rc=1".into(),
                    (None, ReplyStyle::Slurm) => "cmd=get_result rc=-1 msg=key_not_found".into(),
                }
            }
            "barrier_in" => {
                state.waiting += 1;
                changed.notify_all();
                let number = state.fences;
                if state.waiting == self.size {
                    (state.waiting, state.fences) = (0, number + 1);
                    changed.notify_all();
                }
                drop(changed.wait_while(state, |state| state.fences == number));
                match self.manner {
                    ReplyStyle::Hydra => "cmd=barrier_out tag=0".into(),
                    ReplyStyle::Slurm => "cmd=barrier_out rc=0".into(),
                }
            }
            "abort" => {
                state.aborted = fields["exitcode"].parse().ok();
                changed.notify_all();
                return None;
            }
            "publish_name" => {
                let service = fields["service"].to_owned();
                let is_free = !state.services.contains_key(&service);
                if is_free {
                    state.services.insert(service, fields["port"].to_owned());
                }
                self.judge("publish_result", is_free)
            }
            "lookup_name" => match state.services.get(fields["service"]) {
                Some(port) => format!("{} port={port}", self.judge("lookup_result", true)),
                None => self.judge("lookup_result", false),
            },
            "unpublish_name" => {
                let is_there = state.services.remove(fields["service"]).is_some();
                self.judge("unpublish_result", is_there)
            }
            "finalize" => {
                state.finalized += 1;
                "cmd=finalize_ack rc=0".into()
            }
            other => panic!("unknown command {other}"),
        })
    }
}
