//! Blocks of a region in messages: a word for each block.

use fastpath_transport::RemoteBlock;

/// Largest block of [`crate::Worker::put_blocks_nbi`] and [`crate::Worker::get_blocks_nbi`], in bytes.
pub const BLOCK_MAX: u64 = 4096;
/// Largest number of blocks in one call.
pub const BLOCKS_MAX: usize = 1024;
/// Bytes of a block's word in a message.
pub(crate) const WORD: usize = size_of::<u64>();

const LEN_BITS: u32 = 13;
const LEN_MASK: u64 = (1 << LEN_BITS) - 1;
const _: () = assert!(BLOCK_MAX <= LEN_MASK);

/// Returns whether a word can hold the block.
pub(crate) fn fits_word(block: &RemoteBlock) -> bool {
    (1..=BLOCK_MAX).contains(&block.len) && block.offset <= (u64::MAX >> LEN_BITS) - BLOCK_MAX
}

/// Packs a block for which [`fits_word`] is true.
pub(crate) fn pack_word(block: &RemoteBlock) -> u64 {
    block.offset << LEN_BITS | block.len
}

pub(crate) fn unpack_word(word: u64) -> RemoteBlock {
    RemoteBlock { offset: word >> LEN_BITS, len: word & LEN_MASK }
}

/// Returns how many of the first blocks fit `room` bytes with their words, at least 1. Also returns the bytes of these
/// words and of these blocks.
pub(crate) fn fit(blocks: &[RemoteBlock], room: usize) -> (usize, usize, usize) {
    let (mut count, mut bytes) = (0, 0);
    for block in blocks {
        let more = bytes + block.len as usize;
        if count != 0 && (count + 1) * WORD + more > room {
            break;
        }
        (count, bytes) = (count + 1, more);
    }
    (count, count * WORD, bytes)
}

/// Merges blocks that follow each other with gaps of at most `gap` bytes into runs that include the gaps.
pub(crate) fn merge(blocks: &[RemoteBlock], gap: u64) -> Vec<RemoteBlock> {
    let mut runs: Vec<RemoteBlock> = Vec::new();
    for block in blocks {
        if let Some(run) = runs.last_mut()
            && let Some(skipped) = block.offset.checked_sub(run.offset + run.len)
            && skipped <= gap
        {
            run.len += skipped + block.len;
        } else {
            runs.push(*block);
        }
    }
    runs
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn word__holds_offset_and_length() {
        for (offset, len) in [(5, 1), ((u64::MAX >> 13) - BLOCK_MAX, BLOCK_MAX), (1 << 40, 4095)] {
            let block = RemoteBlock { offset, len };
            assert!(fits_word(&block));
            assert_eq!(unpack_word(pack_word(&block)), block);
        }
        assert!(!fits_word(&RemoteBlock { offset: 1 << 51, len: 1 }));
        assert!(!fits_word(&RemoteBlock { offset: 0, len: BLOCK_MAX + 1 }));
        assert!(!fits_word(&RemoteBlock { offset: 0, len: 0 }));
    }

    #[test]
    fn fit__counts_words_and_bytes() {
        let blocks = [4, 4, 100].map(|len| RemoteBlock { offset: 0, len });
        assert_eq!(fit(&blocks, 24), (2, 16, 8));
        assert_eq!(fit(&blocks, 23), (1, 8, 4));
        assert_eq!(fit(&blocks, 1), (1, 8, 4));
        assert_eq!(fit(&blocks, 1000), (3, 24, 108));
    }

    #[test]
    fn merge__joins_ascending_blocks_with_small_gaps() {
        let block = |offset, len| RemoteBlock { offset, len };
        let blocks = [block(0, 4), block(8, 4), block(12, 4), block(100, 4), block(50, 4)];
        let runs = [block(0, 16), block(100, 4), block(50, 4)];
        assert_eq!(merge(&blocks, 4), runs);
        assert_eq!(merge(&blocks, 3)[..2], [block(0, 4), block(8, 8)]);
        assert!(merge(&[], 4).is_empty());
    }
}
