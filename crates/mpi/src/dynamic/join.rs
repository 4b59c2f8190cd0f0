//! `MPI_Comm_join` (MPI 5.0, section 11.10.4): two processes exchange their identities over a shared socket.

use super::foreign::{self, Bridge as Strangers};
use super::line::move_bytes;
use super::{CALLS, wait};
use crate::comm_creation::inter::{self, Bridge};
use crate::comm_creation::meeting::{Meeting, Purpose};
use crate::comm_creation::publish;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::group::Group;
use crate::process::Process;
use fastpath_base::tell;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;

const MAGIC: [u8; 8] = *b"FPJOIN1\n";
const BYTES: usize = 24;

/// Identity of the process at one end of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Greeting {
    job: u64,
    rank: u32,
    call: u32,
}

impl Greeting {
    fn encode(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.job.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.rank.to_le_bytes());
        bytes[20..].copy_from_slice(&self.call.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; BYTES]) -> Option<Greeting> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let (job, rest) = rest.split_first_chunk::<8>()?;
        let (rank, call) = rest.split_first_chunk::<4>()?;
        Some(Greeting {
            job: u64::from_le_bytes(*job),
            rank: u32::from_le_bytes(*rank),
            call: u32::from_le_bytes(call.try_into().ok()?),
        })
    }
}

fn refuse(cause: &io::Error) -> Error {
    Error::new(
        MPI_ERR_ARG,
        format!("the socket cannot be used: {cause}; pass a connected stream socket"),
    )
}

/// `MPI_Comm_join`. Returns an intercommunicator with the process at the other end of the socket. Returns
/// `MPI_COMM_NULL` if that process is of a job that cannot be connected. Errors: `MPI_ERR_ARG` if the descriptor is no
/// connected socket, or both ends are this process. `MPI_ERR_OTHER` if the other end sends no valid greeting.
pub fn join(p: &Process, fd: RawFd) -> Result<usize> {
    let job = p.running()?.job;
    let own = Greeting { job: job.job_id(), rank: job.rank() as u32, call: CALLS.of(p).next() };
    let other = exchange(p, fd, own)?;
    let alone = Rc::new(Group::new(vec![own.rank], own.rank));
    if other.job != own.job {
        return join_foreign(p, fd, alone);
    }
    if other.rank == own.rank {
        let text = "this process is at both ends of the socket: pass a socket that leads to \
                    another process";
        return Err(Error::new(MPI_ERR_ARG, text));
    }
    if other.rank as usize >= job.present() {
        let text = format!(
            "the process at the other end of the socket sent an invalid rank: {}",
            other.rank
        );
        return Err(Error::new(MPI_ERR_OTHER, text));
    }
    let (low, high) = match own.rank < other.rank {
        true => (own, other),
        false => (other, own),
    };
    let text = [low.encode(), high.encode()].concat();
    let both = (own.rank, other.rank);
    let (meeting, leader) = Meeting::of_pair(p, both, &text, Purpose::Join);
    let channel = meeting.channel(p);
    let pact = inter::greet(p, &alone, Bridge { channel, leader })?;
    let remote = Rc::new(Group::new(pact.remote, own.rank));
    publish(p, inter::assemble(p, alone, remote, pact.block)?)
}

/// Joins a process of another job. If the two cannot be connected, prints the reason and returns `MPI_COMM_NULL` (MPI
/// 5.0, section 11.10.4).
fn join_foreign(p: &Process, fd: RawFd, alone: Rc<Group>) -> Result<usize> {
    let meeting = Meeting::new(p, alone.clone(), b"", Purpose::Join);
    // Both ends trust the socket, so no secret key is needed.
    let bridge = Strangers { fd, key: [0; 32] };
    match foreign::connect(p, &meeting.channel(p), &alone, 0, Some(bridge)) {
        Ok((remote, block)) => publish(p, inter::assemble(p, alone, Rc::new(remote), block)?),
        // MPI defines no error for this case, so the reason is printed.
        Err(why) => {
            let (rank, why) = (p.running()?.job.rank(), why.message());
            tell!("fastpath: rank {rank}: MPI_Comm_join returns MPI_COMM_NULL: {why}");
            Ok(MPI_COMM_NULL)
        }
    }
}

/// Sends this process's greeting and, making progress, waits for the peer's.
fn exchange(p: &Process, fd: RawFd, own: Greeting) -> Result<Greeting> {
    let bytes = own.encode();
    let (mut sent, mut got) = (0, 0);
    let mut theirs = [0; BYTES];
    let mut failed = None;
    wait(p, 0, |_| {
        // The first error is final, so nothing is moved after it.
        if failed.is_some() {
            return true;
        }
        let step = move_bytes(fd, (&bytes, &mut sent), (&mut theirs, &mut got));
        failed = step.err();
        failed.is_some() || (sent == BYTES && got == BYTES)
    })?;
    if let Some(cause) = failed {
        return Err(refuse(&cause));
    }
    Greeting::decode(&theirs).ok_or_else(|| {
        let text = "the process at the other end of the socket has not called MPI_Comm_join: call \
                    MPI_Comm_join there too";
        Error::new(MPI_ERR_OTHER, text)
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn greeting__comes_back_as_it_was() {
        let greeting = Greeting { job: 0x1234_5678_9abc_def0, rank: 3, call: 9 };
        let bytes = greeting.encode();
        assert_eq!(Greeting::decode(&bytes), Some(greeting));
        for at in 0..8 {
            let mut wrong = bytes;
            wrong[at] ^= 1;
            assert_eq!(Greeting::decode(&wrong), None);
        }
    }
}
