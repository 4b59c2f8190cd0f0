//! Two groups of processes of several jobs become an intercommunicator (docs/decisions/0071).
//!
//! The roots have a socket to each other. Every member says who it is and where it listens; the roots exchange these
//! lists; every member has the ranks of the other side numbered in its own job, and learns the secret by which they
//! will greet each other. When all members of both sides are ready, messages go as between ranks of two hosts.

use super::line::swap;
use super::{ask, with_worker};
use crate::coll::fabric::Fabric;
use crate::coll::words;
use crate::comm_creation::inter;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::comm::contexts::Block;
use crate::objects::group::Group;
use crate::p2p::channel::Channel;
use crate::process::Process;
use fastpath_bootstrap::control::{Answer, Foreign, Request};
use fastpath_bootstrap::job::{Job, Origin};
use fastpath_bootstrap::network::card::CARD_BYTES;
use fastpath_bootstrap::network::proof::Pass;
use fastpath_bootstrap::network::random::draw_random;
use std::os::fd::RawFd;

/// Words of what a member says of itself: whether it listens, its job, its rank and host there, bytes of its card.
const SELF_HEAD: usize = 5;
const SELF: usize = SELF_HEAD + CARD_BYTES / 8;
/// Words that the root passes on: error class, bytes of the list, a block of contexts, the secret.
const NEWS: usize = 7;
/// First byte of a message between roots: what follows is a list, or an error's text.
const LIST: u8 = 1;
const FAILED: u8 = 2;
/// Bytes before the list: a random half of the secret, a block of contexts, the root's place in the list.
const HEAD: usize = 32 + 8 + 4;

/// What the roots share: the socket, and a key that both know from the name of a port, if they have one.
#[derive(Clone, Copy)]
pub struct Bridge {
    pub fd: RawFd,
    pub key: [u8; 32],
}

/// What the roots have agreed on.
struct Agreed {
    list: Vec<u8>,
    block: Block,
    secret: [u8; 32],
}

/// All members of a group call it; the root with its bridge. The remote group, and contexts.
///
/// # Errors
/// `MPI_ERR_PORT`: the other side has gone or cannot be connected with; all members get the same but for the text.
pub fn connect(
    p: &Process, channel: &Channel<'_>, group: &Group, root: u32, bridge: Option<Bridge>,
) -> Result<(Group, Block)> {
    let me = group.world_ranks()[channel.rank() as usize];
    let own = open(p);
    p.contexts.share();
    let all = words::gather_all(channel, describe(&own))?;
    let is_ready = all.iter().all(|words| words[0] == 1);
    let agreed = bridge.map(|bridge| match is_ready {
        true => exchange(p, bridge, &all, channel.rank()),
        false => refuse(p, bridge, "a process of the other side cannot be reached"),
    });
    let agreed = pass_on(channel, root, agreed);
    own?;
    let agreed = agreed?;
    let numbered = number(p, channel, &all, &agreed);
    // All of this side, then of both.
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
        let text = "a process of this side or the other one could not be connected: see its error";
        return Err(Error::new(MPI_ERR_PORT, text));
    }
    let remote = Group::new(ranks, me);
    if let Some(common) = group.intersection(&remote).world_ranks().first() {
        let text = format!("rank {common} of this job is on both sides");
        return Err(Error::new(MPI_ERR_COMM, text));
    }
    Ok((remote, agreed.block))
}

/// Bytes as words, the last one filled up with zeros.
fn to_words(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        let mut whole = [0; 8];
        whole[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(whole)
    };
    bytes.chunks(8).map(word).collect()
}

/// The reverse, for `bytes` bytes.
fn to_bytes(words: &[u64], bytes: usize) -> Vec<u8> {
    let all = words.iter().flat_map(|word| word.to_le_bytes());
    all.take(bytes).collect()
}

/// Listens, and says who this process is.
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
        let card = to_words(&own.card);
        words[SELF_HEAD..][..card.len()].copy_from_slice(&card);
    }
    words
}

fn read_member(words: &[u64; SELF]) -> Foreign {
    let [_, job, rank, host, bytes] = *words.first_chunk::<SELF_HEAD>().unwrap_or(&[0; SELF_HEAD]);
    Foreign {
        origin: Origin { job, rank: rank as u32 },
        host: host as u32,
        card: to_bytes(&words[SELF_HEAD..], bytes as usize),
    }
}

/// The root's part: both sides' lists.
fn exchange(p: &Process, bridge: Bridge, all: &[[u64; SELF]], root: u32) -> Result<Agreed> {
    let random = draw_random::<32>();
    let half = random.map_err(|e| Error::new(MPI_ERR_OTHER, format!("no random numbers: {e}")))?;
    let members: Vec<Foreign> = all.iter().map(read_member).collect();
    let own = p.contexts.reserve(0);
    let mut message = vec![LIST];
    message.extend_from_slice(&half);
    message.extend_from_slice(&own.to_wire().to_le_bytes());
    message.extend_from_slice(&root.to_le_bytes());
    message.extend_from_slice(&Foreign::encode_all(&members));
    let theirs = talk(p, bridge, &message)?;
    let other = read_list(&theirs).ok_or_else(|| {
        let text = "the other side has sent what is no list of processes: is it another version?";
        Error::new(MPI_ERR_PORT, text)
    })?;
    let is_first = members[root as usize].origin < other.root;
    let halves = match is_first {
        true => [half, other.half],
        false => [other.half, half],
    };
    let pass = Pass { job_id: 0, secret: bridge.key };
    Ok(Agreed {
        list: theirs[1 + HEAD..].to_vec(),
        block: if is_first { own } else { other.block },
        secret: pass.tag(b"two jobs", &halves.concat(), 0, 0),
    })
}

/// What the other root has sent, but for the list.
struct Other {
    half: [u8; 32],
    block: Block,
    root: Origin,
}

fn read_list(message: &[u8]) -> Option<Other> {
    let (&[LIST], rest) = message.split_first_chunk::<1>()? else {
        return None;
    };
    let (half, rest) = rest.split_first_chunk::<32>()?;
    let (block, rest) = rest.split_first_chunk::<8>()?;
    let (root, rest) = rest.split_first_chunk::<4>()?;
    let list = Foreign::decode_all(rest)?;
    let root = list.get(u32::from_le_bytes(*root) as usize)?.origin;
    let block = Block::from_wire(u64::from_le_bytes(*block));
    let is_whole = list.iter().all(|one| one.card.len() <= CARD_BYTES) && !block.is_empty();
    is_whole.then_some(Other { half: *half, block, root })
}

/// Tells the other root that there will be no connection.
fn refuse(p: &Process, bridge: Bridge, why: &str) -> Result<Agreed> {
    let mut message = vec![FAILED];
    message.extend_from_slice(why.as_bytes());
    // Whatever it says, this side has failed.
    let _ = swap(p, bridge.fd, &message)?;
    let text = "a process of this side cannot be reached from other jobs: see its error";
    Err(Error::new(MPI_ERR_PORT, text))
}

fn talk(p: &Process, bridge: Bridge, message: &[u8]) -> Result<Vec<u8>> {
    let lost = |cause| {
        let text = format!("the other side has gone while both were being connected: {cause}");
        Error::new(MPI_ERR_PORT, text)
    };
    let theirs = swap(p, bridge.fd, message)?.map_err(lost)?;
    match theirs.split_first() {
        Some((&FAILED, why)) => {
            let why: String = String::from_utf8_lossy(why).chars().take(300).collect();
            Err(Error::new(MPI_ERR_PORT, format!("the other side says: {why}")))
        }
        _ => Ok(theirs),
    }
}

/// All members learn what the roots have agreed on.
fn pass_on(channel: &Channel<'_>, root: u32, agreed: Option<Result<Agreed>>) -> Result<Agreed> {
    let (mut news, mut list, mut failed) = ([0; NEWS], Vec::new(), None);
    match agreed {
        Some(Ok(agreed)) => {
            news[1] = agreed.list.len() as u64;
            news[2] = agreed.block.to_wire();
            news[3..].copy_from_slice(&to_words(&agreed.secret));
            list = agreed.list;
        }
        Some(Err(error)) => {
            news[0] = error.code() as u64;
            failed = Some(error);
        }
        None => {}
    }
    words::broadcast_from(channel, root, &mut news)?;
    if let Some(error) = failed {
        return Err(error);
    }
    if news[0] != 0 {
        let text = format!("rank {root}, the root, could not connect: see its error");
        return Err(Error::new(news[0] as i32, text));
    }
    let bytes = news[1] as usize;
    list.resize(bytes, 0);
    let mut words = to_words(&list);
    words::broadcast_from(channel, root, &mut words)?;
    let list = to_bytes(&words, bytes);
    let mut secret = [0; 32];
    for (bytes, word) in secret.chunks_exact_mut(8).zip(&news[3..]) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let block = Block::from_wire(news[2]);
    Ok(Agreed { list, block, secret })
}

/// Has the ranks of the other side numbered in this job, and knows them from now on. All members call it.
fn number(
    p: &Process, channel: &Channel<'_>, members: &[[u64; SELF]], agreed: &Agreed,
) -> Result<Vec<u32>> {
    let job = p.running()?.job;
    let all = Foreign::decode_all(&agreed.list).unwrap_or_default();
    let is_foreign = |one: &&Foreign| one.origin.job != job.job_id();
    let foreign: Vec<Foreign> = all.iter().filter(is_foreign).cloned().collect();
    let ranks = match job.numbers_foreign() {
        true => take_numbers(job, channel, members, &foreign),
        false => {
            let numbered = ask_numbers(p, &foreign);
            // Members of other jobs may need it.
            share(channel, 0).and(numbered)
        }
    }?;
    let is_right = |&rank: &u32| (rank as usize) < job.present();
    if ranks.len() != foreign.len() || !ranks.iter().all(is_right) {
        return Err(Error::new(MPI_ERR_INTERN, "unexpected answer of mpiexec"));
    }
    let pairs = ranks.iter().copied().zip(foreign.iter().map(|one| one.origin));
    job.know_foreign(pairs, agreed.secret);
    with_worker(p, |worker| worker.note_foreign(&ranks))?;
    let of = |one: &Foreign| job.find_origin(one.origin);
    let ranks: Option<Vec<u32>> = all.iter().map(of).collect();
    let ranks = ranks.filter(|ranks| !ranks.is_empty()).ok_or_else(|| {
        let text = "the other side names a process of no rank of this job";
        Error::new(MPI_ERR_PORT, text)
    })?;
    inter::require_reach(job, &ranks)?;
    Ok(ranks)
}

/// What each member says: one word.
fn share(channel: &Channel<'_>, word: u64) -> Result<Vec<[u64; 1]>> {
    words::gather_all(channel, [word])
}

/// The numbers where there is no launcher of ours: the first member of each node takes some that the others of it use
/// too, but for ranks that they know already.
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
        let text = format!("rank {leader} has found no room for the ranks of the other side");
        return Err(Error::new(MPI_ERR_PORT, text));
    }
    let numbers = foreign.iter().zip(first..);
    Ok(numbers.map(|(one, number)| job.find_origin(one.origin).unwrap_or(number)).collect())
}

/// The numbers that the launcher gives.
fn ask_numbers(p: &Process, foreign: &[Foreign]) -> Result<Vec<u32>> {
    if foreign.is_empty() {
        return Ok(Vec::new());
    }
    let request = Request::Number { foreign: foreign.to_vec() };
    match ask(p, MPI_ERR_PORT, "connect jobs", &request)? {
        Answer::Numbered { ranks } => Ok(ranks),
        Answer::Refused { text, .. } => Err(Error::new(MPI_ERR_PORT, text)),
        _ => Err(Error::new(MPI_ERR_INTERN, "unexpected answer of mpiexec")),
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
