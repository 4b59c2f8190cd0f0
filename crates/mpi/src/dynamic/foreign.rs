//! Intercommunicators between processes of several jobs (docs/decisions/0071).
//!
//! The roots are connected by a socket. Every member describes itself and its listening address, and the roots exchange
//! the lists of members. Every member numbers the ranks of the other side in its own job, and receives the secret of
//! later handshakes. When all members of both sides are ready, messages use the network as between two hosts.

use super::line::swap;
use super::{ask, with_worker};
use crate::coll::fabric::Fabric;
use crate::coll::words;
use crate::comm_creation::inter;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::comm::contexts::ContextBlock;
use crate::objects::group::Group;
use crate::p2p::channel::Channel;
use crate::process::Process;
use fastpath_base::entropy::draw_random;
use fastpath_job::control::{Answer, Foreign, Request};
use fastpath_job::network::proof::Pass;
use fastpath_job::{Job, Origin};
use fastpath_segment::network_card::CARD_BYTES;
use std::os::fd::RawFd;

/// Number of words that precede the network card in a member's description: whether the member listens, its job, rank
/// and host, and the bytes of the card. The card holds the host's name and the listening addresses.
const SELF_HEAD: usize = 5;
const SELF: usize = SELF_HEAD + CARD_BYTES / 8;
/// Number of words that the root broadcasts before the list: bytes of the list, a block of contexts, and the secret.
const AGREED_HEAD: usize = 6;
/// First byte of a message between roots. After `LIST`, a list of members follows; after `FAILED`, an error text.
const LIST: u8 = 1;
const FAILED: u8 = 2;
/// Number of bytes before the list: a random half of the secret, a block of contexts, and the root's position in the
/// list.
const HEAD: usize = 32 + 8 + 4;

/// Connection between the roots: the socket, and the secret key in the port's name. Without a port, the key is zeros.
#[derive(Clone, Copy)]
pub struct Bridge {
    pub fd: RawFd,
    pub key: [u8; 32],
}

struct ForeignAgreement {
    list: Vec<u8>,
    block: ContextBlock,
    secret: [u8; 32],
}

impl ForeignAgreement {
    fn to_words(&self) -> Vec<u64> {
        let mut words = vec![self.list.len() as u64, self.block.to_wire()];
        words.extend(words::to_words(&self.secret));
        words.extend(words::to_words(&self.list));
        words
    }

    fn from_words(words: &[u64]) -> Result<ForeignAgreement> {
        let incomplete = || Error::new(MPI_ERR_INTERN, "the root sent an incomplete message");
        let (head, list) = words.split_first_chunk::<AGREED_HEAD>().ok_or_else(incomplete)?;
        let secret = words::to_bytes(&head[2..], 32).try_into().map_err(|_| incomplete())?;
        let list = words::to_bytes(list, head[0] as usize);
        Ok(ForeignAgreement { list, block: ContextBlock::from_wire(head[1]), secret })
    }
}

/// Connects two groups. All members call this; only the root passes a bridge. Returns the remote group and a block of
/// contexts. Errors: `MPI_ERR_PORT` on all members, with different texts, if the other side has gone or is unreachable.
pub fn connect(
    p: &Process, channel: &Channel<'_>, group: &Group, root: u32, bridge: Option<Bridge>,
) -> Result<(Group, ContextBlock)> {
    let me = group.world_ranks()[channel.rank() as usize];
    let own = open(p);
    p.contexts.share();
    let all = words::gather_all(channel, describe(&own))?;
    let is_ready = all.iter().all(|words| words[0] == 1);
    let agreed = bridge.map(|bridge| match is_ready {
        true => exchange(p, bridge, &all, channel.rank()),
        false => refuse(p, bridge, "a process of the other job cannot be reached"),
    });
    let agreed = pass_on(channel, root, agreed);
    own?;
    let agreed = agreed?;
    let numbered = number(p, channel, &all, &agreed);
    // Agree among the members of this side, then between both sides.
    let is_done = u64::from(numbered.is_ok());
    let done = words::gather_all(channel, [is_done])?;
    let done = done.iter().all(|&[done]| done == 1);
    let mut both = [u64::from(done)];
    if let Some(bridge) = bridge {
        let theirs = swap(p, bridge.fd, &[u8::from(done)])?;
        both[0] &= u64::from(theirs.is_ok_and(|theirs| theirs == [1]));
    }
    words::broadcast_from(channel, root, &mut both)?;
    let ranks = numbered?;
    if both[0] != 1 {
        let text = "some processes of the two jobs could not connect: see their error messages";
        return Err(Error::new(MPI_ERR_PORT, text));
    }
    let remote = Group::new(ranks, me);
    if let Some(common) = group.intersection(&remote).world_ranks().first() {
        let text = format!("rank {common} of this job is in both groups");
        let advice = "connect two groups that share no process";
        return Err(Error::new(MPI_ERR_COMM, text).with_advice(Some(advice)));
    }
    Ok((remote, agreed.block))
}

/// Opens a listener, and returns a description of this process.
fn open(p: &Process) -> Result<Foreign> {
    let engine = p.running()?;
    let job = engine.job;
    let card = with_worker(p, |worker| worker.open_for_foreign(engine.config))?;
    let card = card.map_err(|text| Error::new(MPI_ERR_PORT, text))?;
    Ok(Foreign { origin: job.origin(job.rank()), host: job.host(job.rank()), card: card.encode() })
}

fn describe(own: &Result<Foreign>) -> [u64; SELF] {
    let mut words = [0; SELF];
    if let Ok(own) = own {
        let (origin, bytes) = (own.origin, own.card.len() as u64);
        let head = [1, origin.job, origin.rank.into(), own.host.into(), bytes];
        words[..SELF_HEAD].copy_from_slice(&head);
        let card = words::to_words(&own.card);
        words[SELF_HEAD..][..card.len()].copy_from_slice(&card);
    }
    words
}

fn read_member(words: &[u64; SELF]) -> Foreign {
    let [_, job, rank, host, bytes] = *words.first_chunk::<SELF_HEAD>().unwrap_or(&[0; SELF_HEAD]);
    Foreign {
        origin: Origin { job, rank: rank as u32 },
        host: host as u32,
        card: words::to_bytes(&words[SELF_HEAD..], bytes as usize),
    }
}

/// Exchanges the lists of both sides. Only the root calls this.
fn exchange(
    p: &Process, bridge: Bridge, all: &[[u64; SELF]], root: u32,
) -> Result<ForeignAgreement> {
    let random = draw_random::<32>();
    let half = random.map_err(|e| {
        Error::new(
            MPI_ERR_OTHER,
            format!("the system gave no random numbers: {e}; allow the system call getrandom"),
        )
    })?;
    let members: Vec<Foreign> = all.iter().map(read_member).collect();
    let own = p.contexts.reserve(0);
    let mut message = vec![LIST];
    message.extend_from_slice(&half);
    message.extend_from_slice(&own.to_wire().to_le_bytes());
    message.extend_from_slice(&root.to_le_bytes());
    message.extend_from_slice(&Foreign::encode_all(&members));
    let theirs = talk(p, bridge, &message)?;
    let other = read_list(&theirs).ok_or_else(|| {
        let text = "the other job sent an invalid list of processes: the other job may use \
                    another version of Fastpath";
        Error::new(MPI_ERR_PORT, text)
    })?;
    let is_first = members[root as usize].origin < other.root;
    let halves = match is_first {
        true => [half, other.half],
        false => [other.half, half],
    };
    let pass = Pass { job_id: 0, secret: bridge.key };
    Ok(ForeignAgreement {
        list: theirs[1 + HEAD..].to_vec(),
        block: if is_first { own } else { other.block },
        secret: pass.tag(b"two jobs", &halves.concat(), 0, 0),
    })
}

/// Message from the other root, without the list.
struct RootMessage {
    half: [u8; 32],
    block: ContextBlock,
    root: Origin,
}

fn read_list(message: &[u8]) -> Option<RootMessage> {
    let (&[LIST], rest) = message.split_first_chunk::<1>()? else {
        return None;
    };
    let (half, rest) = rest.split_first_chunk::<32>()?;
    let (block, rest) = rest.split_first_chunk::<8>()?;
    let (root, rest) = rest.split_first_chunk::<4>()?;
    let list = Foreign::decode_all(rest)?;
    let root = list.get(u32::from_le_bytes(*root) as usize)?.origin;
    let block = ContextBlock::from_wire(u64::from_le_bytes(*block));
    let is_whole = list.iter().all(|one| one.card.len() <= CARD_BYTES) && !block.is_empty();
    is_whole.then_some(RootMessage { half: *half, block, root })
}

fn refuse(p: &Process, bridge: Bridge, why: &str) -> Result<ForeignAgreement> {
    let mut message = vec![FAILED];
    message.extend_from_slice(why.as_bytes());
    // The other root's answer is ignored, because this side has failed.
    let _ = swap(p, bridge.fd, &message)?;
    let text = "a process of this job cannot be reached from other jobs: see the error message of \
                that process";
    Err(Error::new(MPI_ERR_PORT, text))
}

fn talk(p: &Process, bridge: Bridge, message: &[u8]) -> Result<Vec<u8>> {
    let lost = |cause| {
        let text =
            format!("the connection to the other job was lost in the middle of the call: {cause}");
        Error::new(MPI_ERR_PORT, text)
    };
    let theirs = swap(p, bridge.fd, message)?.map_err(lost)?;
    match theirs.split_first() {
        Some((&FAILED, why)) => {
            let why: String = String::from_utf8_lossy(why).chars().take(300).collect();
            Err(Error::new(MPI_ERR_PORT, format!("the other job reports: {why}")))
        }
        _ => Ok(theirs),
    }
}

/// Broadcasts the roots' agreement to all members.
fn pass_on(
    channel: &Channel<'_>, root: u32, agreed: Option<Result<ForeignAgreement>>,
) -> Result<ForeignAgreement> {
    let failure = agreed.as_ref().and_then(|agreed| agreed.as_ref().err());
    let mut words = match &agreed {
        Some(Ok(agreed)) => agreed.to_words(),
        _ => Vec::new(),
    };
    let told = words::broadcast_outcome(channel, root, failure, &mut words);
    match agreed {
        Some(agreed) => told.and(agreed),
        None => told.and_then(|()| ForeignAgreement::from_words(&words)),
    }
}

/// Assigns numbers in this job to the ranks of the other side, and records them. All members call this.
fn number(
    p: &Process, channel: &Channel<'_>, members: &[[u64; SELF]], agreed: &ForeignAgreement,
) -> Result<Vec<u32>> {
    let job = p.running()?.job;
    let all = Foreign::decode_all(&agreed.list).unwrap_or_default();
    let is_foreign = |one: &&Foreign| one.origin.job != job.job_id();
    let foreign: Vec<Foreign> = all.iter().filter(is_foreign).cloned().collect();
    let ranks = match job.numbers_foreign() {
        true => take_numbers(job, channel, members, &foreign),
        false => {
            let numbered = ask_numbers(p, &foreign);
            // Members whose job has no launcher of this project exchange words in `take_numbers`. Take part in that
            // exchange.
            share(channel, 0).and(numbered)
        }
    }?;
    let is_right = |&rank: &u32| (rank as usize) < job.present();
    if ranks.len() != foreign.len() || !ranks.iter().all(is_right) {
        return Err(Error::new(MPI_ERR_INTERN, "unexpected answer from mpiexec"));
    }
    let pairs = ranks.iter().copied().zip(foreign.iter().map(|one| one.origin));
    job.know_foreign(pairs, agreed.secret);
    with_worker(p, |worker| worker.note_foreign(&ranks))?;
    let of = |one: &Foreign| job.find_origin(one.origin);
    let ranks: Option<Vec<u32>> = all.iter().map(of).collect();
    let ranks = ranks.filter(|ranks| !ranks.is_empty()).ok_or_else(|| {
        let text = "the other job sent a process that is not a rank of this job";
        Error::new(MPI_ERR_PORT, text)
    })?;
    inter::require_reach(job, &ranks)?;
    Ok(ranks)
}

fn share(channel: &Channel<'_>, word: u64) -> Result<Vec<[u64; 1]>> {
    words::gather_all(channel, [word])
}

/// Assigns numbers without a launcher of this project. The first member of each node reserves numbers for all members
/// of its node. Ranks that the job already knows keep their numbers.
fn take_numbers(
    job: &Job, channel: &Channel<'_>, members: &[[u64; SELF]], foreign: &[Foreign],
) -> Result<Vec<u32>> {
    let own = (job.job_id(), job.host(job.rank()));
    let is_here = |member: &[u64; SELF]| {
        let Foreign { origin, host, .. } = read_member(member);
        (origin.job, host) == own
    };
    let leader = members.iter().position(is_here).unwrap_or(0);
    let added = match leader == channel.rank() as usize && !foreign.is_empty() {
        true => job.add_foreign(foreign),
        false => Ok(0),
    };
    let word = added.as_ref().map_or(0, |&first| first.into());
    let shared = share(channel, word)?;
    if let Err(text) = added {
        return Err(Error::new(MPI_ERR_PORT, text));
    }
    let first = shared[leader][0] as u32;
    if first == 0 && !foreign.is_empty() {
        let text = format!(
            "rank {leader} cannot add the ranks of the other job: see the error message of that \
             rank"
        );
        return Err(Error::new(MPI_ERR_PORT, text));
    }
    let numbers = foreign.iter().zip(first..);
    Ok(numbers.map(|(one, number)| job.find_origin(one.origin).unwrap_or(number)).collect())
}

fn ask_numbers(p: &Process, foreign: &[Foreign]) -> Result<Vec<u32>> {
    if foreign.is_empty() {
        return Ok(Vec::new());
    }
    let request = Request::Number { foreign: foreign.to_vec() };
    match ask(p, MPI_ERR_PORT, "connect jobs", &request)? {
        Answer::Numbered { ranks } => Ok(ranks),
        Answer::Refused { text, .. } => Err(Error::new(MPI_ERR_PORT, text)),
        _ => Err(Error::new(MPI_ERR_INTERN, "unexpected answer from mpiexec")),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn member(rank: u32) -> Foreign {
        Foreign {
            origin: Origin { job: 7, rank },
            host: 2,
            card: (0..CARD_BYTES as u8 - rank as u8).collect(),
        }
    }

    #[test]
    fn member__comes_back_as_it_was() {
        for rank in [0, 5] {
            assert_eq!(read_member(&describe(&Ok(member(rank)))), member(rank));
        }
        let failed = describe(&Err(Error::new(MPI_ERR_PORT, "no")));
        assert_eq!(failed[0], 0);
    }

    fn message(root: u32) -> Vec<u8> {
        let mut message = vec![LIST];
        message.extend_from_slice(&[3; 32]);
        message.extend_from_slice(&(1_u64 << 32 | 16 << 8 | 8).to_le_bytes());
        message.extend_from_slice(&root.to_le_bytes());
        message.extend_from_slice(&Foreign::encode_all(&[member(0), member(1)]));
        message
    }

    #[test]
    fn list__is_read_whole_or_not_at_all() {
        let other = read_list(&message(1)).unwrap();
        assert_eq!((other.half, other.root.rank), ([3; 32], 1));
        assert!(read_list(&message(2)).is_none());
        let whole = message(0);
        assert!((0..whole.len()).all(|end| read_list(&whole[..end]).is_none()));
    }

    #[test]
    fn fuzz__list_is_understood_or_refused() {
        let (one, two) = (message(0), message(1));
        crate::mutate::run(&[&one, &two], |input| _ = read_list(input));
    }
}
