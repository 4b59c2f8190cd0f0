//! Lustre stripes: setting them for a new file, and reading them.
//!
//! The interface is the one of `lustre_user.h`, releases 1.8 to 2.16. A file is created without objects, then `ioctl`
//! sets its stripes. A second `ioctl` reads them. Numbers are in host byte order, without padding.
#![allow(unsafe_code)]

/// Flags of `open` that create a file without objects (`O_LOV_DELAY_CREATE`).
pub(crate) const DELAY_CREATE: i32 = 0o100_000_000 | libc::O_NOCTTY | libc::O_ASYNC;

/// `LL_IOC_LOV_SETSTRIPE` and `LL_IOC_LOV_GETSTRIPE`: `_IOW('f', 154, long)` and 155.
const SET: u64 = 0x4008_669A;
const GET: u64 = 0x4008_669B;

/// Magic numbers of a layout: version 1, version 3 with a pool name after the head, and version 5 with chosen servers.
const MAGIC: [u32; 3] = [0x0BD1_0BD0, 0x0BD3_0BD0, 0x0BD5_0BD0];

/// Bytes of the head: magic, pattern, 16 bytes of object name, stripe size, stripe count, first server.
const HEAD: usize = 32;
/// Bytes of a pool name.
const POOL: usize = 16;
/// Bytes of a layout for each stripe.
const OBJECT: usize = 24;
/// Largest number of stripes of a file.
const MOST: usize = 2000;

/// Granularity of the stripe size, in bytes.
const GRAIN: u64 = 1 << 16;

/// Stripes of a file. In a request, 0 means the default of the folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Striping {
    /// Bytes of a stripe.
    pub unit: u64,
    /// Number of servers that receive stripes in turn.
    pub factor: u64,
}

/// Encodes a requested layout. Returns none if `wish` requests nothing that Lustre accepts.
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

/// Decodes a layout. Returns none for a composite layout.
fn decode(bytes: &[u8]) -> Option<Striping> {
    let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let half = |at: usize| Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let magic = word(0)?;
    let (unit, factor) = (u64::from(word(24)?), u64::from(half(28)?));
    let is_known = MAGIC.contains(&magic) && unit > 0 && factor > 0;
    is_known.then_some(Striping { unit, factor })
}

/// Requests stripes for a file without objects. If Lustre refuses, the folder's default applies, as [`get`] reports.
pub(crate) fn set(fd: i32, wish: Striping) {
    if let Some(bytes) = encode(wish) {
        // SAFETY: the call reads HEAD bytes, the size of a layout of version 1.
        unsafe { libc::ioctl(fd, SET as _, bytes.as_ptr()) };
    }
}

/// Reads the stripes of a file. Returns none if Lustre reports none.
pub(crate) fn get(fd: i32) -> Option<Striping> {
    let mut bytes = vec![0u8; HEAD + POOL + OBJECT * MOST];
    bytes[..4].copy_from_slice(&MAGIC[0].to_ne_bytes());
    // Number of stripes that the buffer has space for.
    bytes[28..30].copy_from_slice(&(MOST as u16).to_ne_bytes());
    // SAFETY: the call writes a head and OBJECT bytes for each stripe, for which `bytes` has space.
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
        // One of the two values is enough. Requests that Lustre would refuse are not made.
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
        // A composite layout.
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
