//! Greeting of two processes before the first message: proves to each process that the other belongs to the job, and
//! which rank it is.
//!
//! ```text
//! dialer                                  other side
//!    HELLO    magic, from, to, nonce, tag  -->
//!    <--  WELCOME  magic, from, to, nonce, tag of both
//!    CONFIRM  tag of both                  -->
//! ```
//!
//! Each tag is a keyed hash (BLAKE3) under the job's secret, over the job id and the greeting so far. Both nonces are
//! fresh, so that a replay fails. The greeting authenticates the ranks; later messages are not encrypted.

use fastpath_base::entropy::draw_random;

pub(super) const HELLO: usize = 64;
pub(super) const WELCOME: usize = 64;
pub(super) const CONFIRM: usize = 32;

const NONCE: usize = 16;
const SAID: usize = 16 + NONCE;
const MAGIC: [u8; 4] = *b"FPt1";

#[derive(Clone)]
pub(super) struct Pass {
    pub job_id: u64,
    pub secret: [u8; 32],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VerifiedGreeting {
    pub from: u32,
    pub to: u32,
}

pub(super) fn draw_nonce() -> Option<[u8; NONCE]> {
    draw_random().ok()
}

impl Pass {
    /// Computes an unused tag: a process's first tag also queries the processor (some 40 us in a virtual machine).
    pub fn warm(&self) {
        std::hint::black_box(self.tag(b"nothing", &[]));
    }

    fn tag(&self, step: &[u8], parts: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(step).update(&self.job_id.to_le_bytes());
        for part in parts {
            hasher.update(part);
        }
        hasher.finalize()
    }

    fn say(
        &self, step: &[u8], said: VerifiedGreeting, nonce: [u8; NONCE], before: &[u8],
    ) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&said.from.to_le_bytes());
        bytes[8..12].copy_from_slice(&said.to.to_le_bytes());
        bytes[16..SAID].copy_from_slice(&nonce);
        let tag = self.tag(step, &[before, &bytes[..SAID]]);
        bytes[SAID..].copy_from_slice(tag.as_bytes());
        bytes
    }

    fn read(&self, step: &[u8], bytes: &[u8; HELLO], before: &[u8]) -> Option<VerifiedGreeting> {
        let (said, tag) = bytes.split_first_chunk::<SAID>()?;
        // Hashes are compared in constant time, so that the time tells a stranger nothing.
        if self.tag(step, &[before, said]) != *<&[u8; 32]>::try_from(tag).ok()? {
            return None;
        }
        let word = |at: usize| Some(u32::from_le_bytes(said[at..at + 4].try_into().ok()?));
        (said[..4] == MAGIC).then_some(VerifiedGreeting { from: word(4)?, to: word(8)? })
    }

    pub fn hello(&self, from: u32, to: u32, nonce: [u8; NONCE]) -> [u8; HELLO] {
        self.say(b"hello", VerifiedGreeting { from, to }, nonce, &[])
    }

    pub fn read_hello(&self, hello: &[u8; HELLO]) -> Option<VerifiedGreeting> {
        self.read(b"hello", hello, &[])
    }

    pub fn welcome(&self, hello: &[u8; HELLO], by: u32, nonce: [u8; NONCE]) -> [u8; WELCOME] {
        let to = u32::from_le_bytes([hello[4], hello[5], hello[6], hello[7]]);
        self.say(b"welcome", VerifiedGreeting { from: by, to }, nonce, hello)
    }

    pub fn read_welcome(
        &self, hello: &[u8; HELLO], welcome: &[u8; WELCOME],
    ) -> Option<VerifiedGreeting> {
        self.read(b"welcome", welcome, hello)
    }

    pub fn confirm(&self, hello: &[u8; HELLO], welcome: &[u8; WELCOME]) -> [u8; CONFIRM] {
        *self.tag(b"confirm", &[hello, welcome]).as_bytes()
    }

    pub fn is_confirm(
        &self, hello: &[u8; HELLO], welcome: &[u8; WELCOME], confirm: &[u8; CONFIRM],
    ) -> bool {
        self.tag(b"confirm", &[hello, welcome]) == *confirm
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn pass() -> Pass {
        Pass { job_id: 7, secret: [9; 32] }
    }

    #[test]
    fn greeting__passes_between_two_of_one_job() {
        let pass = pass();
        let hello = pass.hello(3, 5, draw_nonce().unwrap());
        assert_eq!(pass.read_hello(&hello), Some(VerifiedGreeting { from: 3, to: 5 }));
        let welcome = pass.welcome(&hello, 5, draw_nonce().unwrap());
        let answer = VerifiedGreeting { from: 5, to: 3 };
        assert_eq!(pass.read_welcome(&hello, &welcome), Some(answer));
        let confirm = pass.confirm(&hello, &welcome);
        assert!(pass.is_confirm(&hello, &welcome, &confirm));
    }

    #[test]
    fn greeting__of_another_job_or_secret_is_a_strangers() {
        let hello = pass().hello(3, 5, draw_nonce().unwrap());
        let secret = Pass { secret: [8; 32], ..pass() };
        let job = Pass { job_id: 8, ..pass() };
        assert_eq!(secret.read_hello(&hello), None);
        assert_eq!(job.read_hello(&hello), None);
    }

    #[test]
    fn greeting__cannot_be_replayed_reflected_or_changed() {
        let pass = pass();
        let hello = pass.hello(3, 5, [1; NONCE]);
        let welcome = pass.welcome(&hello, 5, [2; NONCE]);
        let again = pass.hello(3, 5, [3; NONCE]);
        assert_eq!(pass.read_welcome(&again, &welcome), None);
        assert_eq!(pass.read_welcome(&hello, &hello), None);
        assert_eq!(pass.read_hello(&welcome), None);
        let other = pass.welcome(&hello, 5, [4; NONCE]);
        let confirm = pass.confirm(&hello, &welcome);
        assert!(!pass.is_confirm(&hello, &other, &confirm));
        for at in 0..HELLO {
            let mut changed = hello;
            changed[at] ^= 1;
            assert_eq!(pass.read_hello(&changed), None, "byte {at}");
        }
    }
}
