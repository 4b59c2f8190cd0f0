//! Stripes of Lustre: what a new file is given, and what a file has.
//!
//! By the interface that every release has (`lustre_user.h`, 1.8 to 2.16): a file is made without objects, `ioctl` says
//! how it is to be striped, and another one tells how it is. Numbers are the host's, without gaps.
#![allow(unsafe_code)]

/// Flags of `open` that make a file without objects (`O_LOV_DELAY_CREATE`).
pub(crate) const DELAY_CREATE: i32 = 0o100_000_000 | libc::O_NOCTTY | libc::O_ASYNC;

/// `LL_IOC_LOV_SETSTRIPE` and `LL_IOC_LOV_GETSTRIPE`: `_IOW('f', 154, long)` and 155.
const SET: u64 = 0x4008_669A;
const GET: u64 = 0x4008_669B;

/// What begins a layout: version 1, with a pool's name behind the head (3), and with chosen servers (5).
const MAGIC: [u32; 3] = [0x0BD1_0BD0, 0x0BD3_0BD0, 0x0BD5_0BD0];

/// Magic, pattern, 16 bytes of the object's name, bytes of a stripe, stripes, and the first server.
const HEAD: usize = 32;
/// Bytes of a pool's name, bytes that are told of each stripe, and the most stripes.
const POOL: usize = 16;
const OBJECT: usize = 24;
const MOST: usize = 2000;

/// Stripes are multiples of this many bytes.
const GRAIN: u64 = 1 << 16;

/// How a file is cut into stripes. 0 in a wish: as its folder has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Striping {
    /// Bytes of a stripe.
    pub unit: u64,
    /// Servers that stripes go to in turn.
    pub factor: u64,
}

/// The layout that is asked for; none where the wish says nothing that Lustre takes.
fn encode(wish: Striping) -> Option<[u8; HEAD]> {
    let is_size = wish.unit.is_multiple_of(GRAIN);
    let unit = u32::try_from(wish.unit).ok().filter(|_| is_size)?;
    let factor = u16::try_from(wish.factor).ok().filter(|n| usize::from(*n) <= MOST)?;
    if unit == 0 && factor == 0 {
        return None;
    }
    let mut bytes = [0; HEAD];
    bytes[..4].copy_from_slice(&MAGIC[0].to_ne_bytes());
    bytes[24..28].copy_from_slice(&unit.to_ne_bytes());
    bytes[28..30].copy_from_slice(&factor.to_ne_bytes());
    // Any server may be the first.
    bytes[30..32].copy_from_slice(&u16::MAX.to_ne_bytes());
    Some(bytes)
}

/// What a layout says; none of one that is made of several.
fn decode(bytes: &[u8]) -> Option<Striping> {
    let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let half = |at: usize| Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let magic = word(0)?;
    let (unit, factor) = (u64::from(word(24)?), u64::from(half(28)?));
    let is_known = MAGIC.contains(&magic) && unit > 0 && factor > 0;
    is_known.then_some(Striping { unit, factor })
}

/// Says how a file that has no objects yet is to be striped. It is a hint: where Lustre refuses it, the file is striped
/// as its folder has it, and [`get`] tells that.
pub(crate) fn set(fd: i32, wish: Striping) {
    if let Some(bytes) = encode(wish) {
        // SAFETY: the call reads as many bytes as a layout of this version has.
        unsafe { libc::ioctl(fd, SET as _, bytes.as_ptr()) };
    }
}

/// How a file is striped; none where Lustre does not say.
pub(crate) fn get(fd: i32) -> Option<Striping> {
    let mut bytes = vec![0u8; HEAD + POOL + OBJECT * MOST];
    bytes[..4].copy_from_slice(&MAGIC[0].to_ne_bytes());
    // There is room for so many stripes.
    bytes[28..30].copy_from_slice(&(MOST as u16).to_ne_bytes());
    // SAFETY: the call writes a head and what it has to say of each stripe, for which there is room.
    match unsafe { libc::ioctl(fd, GET as _, bytes.as_mut_ptr()) } {
        0.. => decode(&bytes),
        _ => None,
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn wish__is_a_layout_of_version_1() {
        let unit = 1 << 20;
        let wish = encode(Striping { unit, factor: 4 }).unwrap();
        let mut expected = vec![];
        expected.extend(0x0BD1_0BD0u32.to_ne_bytes());
        expected.extend([0; 20]);
        expected.extend((1u32 << 20).to_ne_bytes());
        expected.extend(4u16.to_ne_bytes());
        expected.extend([255, 255]);
        assert_eq!(wish[..], expected[..]);
        // One of the two is enough, and what Lustre would refuse is not asked for.
        assert!(encode(Striping { unit, factor: 0 }).is_some());
        assert!(encode(Striping { unit: 0, factor: 1 }).is_some());
        for (unit, factor) in [(0, 0), (1000, 4), (1 << 32, 4), (unit, 2001), (unit, 1 << 16)] {
            assert_eq!(encode(Striping { unit, factor }), None);
        }
    }

    #[test]
    fn layout__of_each_version_is_read() {
        let mut bytes = [0u8; HEAD + POOL + 2 * OBJECT];
        bytes[24..28].copy_from_slice(&(4u32 << 20).to_ne_bytes());
        bytes[28..30].copy_from_slice(&2u16.to_ne_bytes());
        for magic in MAGIC {
            bytes[..4].copy_from_slice(&magic.to_ne_bytes());
            let told = Striping { unit: 4 << 20, factor: 2 };
            assert_eq!(decode(&bytes), Some(told));
        }
        assert_eq!(decode(&bytes[..29]), None);
        // One of several parts.
        bytes[..4].copy_from_slice(&0x0BD6_0BD0u32.to_ne_bytes());
        assert_eq!(decode(&bytes), None);
        assert_eq!(decode(&[0; HEAD]), None);
    }

    #[test]
    fn file__of_another_system_has_no_stripes() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(get(std::os::fd::AsRawFd::as_raw_fd(&file)), None);
    }
}
