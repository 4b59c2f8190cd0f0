//! Proof that the other end of a connection is of the job: keyed hashes (BLAKE3) under the job's secret.

/// Secret of a job, known only to its processes.
#[derive(Clone, Copy)]
pub struct Pass {
    /// Number of the job.
    pub job_id: u64,
    /// Secret of the job.
    pub secret: [u8; 32],
}

/// Bytes of a proof.
pub const TAG: usize = blake3::OUT_LEN;

impl Pass {
    /// Returns the proof by which `from` shows to `to` that it knows the secret. `purpose` names the use of the proof.
    /// `nonce` is a random number that one of the two sides has drawn.
    pub fn tag(&self, purpose: &[u8], nonce: &[u8], from: u32, to: u32) -> [u8; TAG] {
        *self.hash(purpose, nonce, from, to).as_bytes()
    }

    /// Returns whether `tag` is the proof that [`Pass::tag`] returns. The time of the comparison does not depend on the
    /// position of a difference.
    pub fn is_tag(
        &self, tag: &[u8; TAG], purpose: &[u8], nonce: &[u8], (from, to): (u32, u32),
    ) -> bool {
        self.hash(purpose, nonce, from, to) == *tag
    }

    fn hash(&self, purpose: &[u8], nonce: &[u8], from: u32, to: u32) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(purpose).update(&self.job_id.to_le_bytes());
        hasher.update(&from.to_le_bytes()).update(&to.to_le_bytes());
        hasher.update(nonce).finalize()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn tag__is_of_one_purpose_nonce_and_pair() {
        let pass = Pass { job_id: 7, secret: [9; 32] };
        let tag = pass.tag(b"a", b"n", 1, 2);
        assert!(pass.is_tag(&tag, b"a", b"n", (1, 2)));
        assert!(!pass.is_tag(&tag, b"b", b"n", (1, 2)));
        assert!(!pass.is_tag(&tag, b"a", b"m", (1, 2)));
        assert!(!pass.is_tag(&tag, b"a", b"n", (2, 1)));
        let other = Pass { job_id: 8, ..pass };
        assert!(!other.is_tag(&tag, b"a", b"n", (1, 2)));
        let other = Pass { secret: [8; 32], ..pass };
        assert!(!other.is_tag(&tag, b"a", b"n", (1, 2)));
    }
}
