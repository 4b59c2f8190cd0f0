//! Kernel interface of the watch: parts of `linux/userfaultfd.h` (Linux 6.18) and `linux/fs.h` (`PROCMAP_QUERY`, since
//! Linux 6.11). On processors with other ioctl numbers the kernel refuses, and no memory is watched.
#![allow(unsafe_code)]

use fastpath_base::fd::{CheckedFd, CheckedHandle};
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::ops::Range;
use std::os::fd::RawFd;

const USER_MODE_ONLY: libc::c_int = 1;
const API: u64 = 0xAA;
const EVENT_REMAP: u64 = 1 << 2;
const EVENT_REMOVE: u64 = 1 << 3;
const EVENT_UNMAP: u64 = 1 << 6;
const MODE_WP: u64 = 1 << 1;
const CAN_WRITEPROTECT: u64 = 1 << 6;
const MSG_REMAP: u8 = 0x14;
const MSG_REMOVE: u8 = 0x15;
const MSG_UNMAP: u8 = 0x16;

const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_WRITEPROTECT: u64 = 0xc018_aa06;
const PROCMAP_QUERY: u64 = 0xc068_6611;

#[repr(C)]
#[derive(Default)]
struct ApiCall {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Default)]
struct RegisterCall {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProtectCall {
    start: u64,
    len: u64,
    mode: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProcmapCall {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name_addr: u64,
    build_id_addr: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct UserfaultMessage {
    event: u8,
    reserved: [u8; 7],
    /// For `MSG_REMAP`: old address, new address and length. For other messages: start and end of the range.
    arg: [u64; 3],
}

const _: () = assert!(size_of::<UserfaultMessage>() == 32);
const _: () = assert!(size_of::<ProcmapCall>() == 0x68);
const _: () = assert!(size_of::<RegisterCall>() == 32);
const _: () = assert!(size_of::<ApiCall>() == 24 && size_of::<ProtectCall>() == 24);

impl UserfaultMessage {
    pub(super) fn range(&self) -> Option<Range<usize>> {
        let [first, second, third] = self.arg.map(|value| value as usize);
        match self.event {
            MSG_REMAP => Some(first..first.saturating_add(third)),
            MSG_REMOVE | MSG_UNMAP => Some(first..second),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchOutcome {
    Watched,
    Foreign,
    Changing,
}

pub(super) struct Userfault(CheckedFd);

impl Userfault {
    /// Opens a userfaultfd. Fails if the kernel has none, is older than 5.11, or forbids it, as in a container.
    pub(super) fn open() -> io::Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: the call takes plain integers.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) } as RawFd;
        // SAFETY: `fd` is a new descriptor without another owner, or -1.
        let this = Userfault(unsafe { CheckedFd::of_call(fd, "watching registered memory") }?);
        let mut call =
            ApiCall { api: API, features: EVENT_UNMAP | EVENT_REMAP | EVENT_REMOVE, ioctls: 0 };
        this.call(UFFDIO_API, &mut call)?;
        Ok(this)
    }

    fn call<T>(&self, number: u64, argument: &mut T) -> io::Result<()> {
        // SAFETY: each caller passes the structure that belongs to `number`.
        match unsafe { libc::ioctl(self.fd(), number as _, &raw mut *argument) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.number_unchecked()
    }

    /// Watches whole pages without write protection, so no access is delayed. Fails if the kernel cannot watch this
    /// memory, or if the program watches it by its own userfaultfd.
    pub(super) fn watch(&self, range: &Range<usize>) -> io::Result<()> {
        let mut call = RegisterCall {
            start: range.start as u64,
            len: range.len() as u64,
            mode: MODE_WP,
            ioctls: 0,
        };
        self.call(UFFDIO_REGISTER, &mut call)?;
        match call.ioctls & CAN_WRITEPROTECT {
            0 => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
            _ => Ok(()),
        }
    }

    /// Ends the watch, and unblocks waiting threads. `fd` becomes a duplicate of `other`, so its number stays taken.
    pub(super) fn end(&self, other: RawFd) {
        if self.0.is_ours() {
            replace(self.fd(), other);
        }
    }

    /// Queries the state of whole pages, by a request to remove their write protection, which they do not have. While
    /// another thread unmaps memory, the kernel refuses the request until that thread continues.
    pub(super) fn ask(&self, range: &Range<usize>) -> WatchOutcome {
        let mut call = ProtectCall { start: range.start as u64, len: range.len() as u64, mode: 0 };
        match self.call(UFFDIO_WRITEPROTECT, &mut call) {
            Ok(()) => WatchOutcome::Watched,
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => WatchOutcome::Changing,
            Err(_) => WatchOutcome::Foreign,
        }
    }

    pub(super) fn read<'a>(&self, to: &'a mut [UserfaultMessage]) -> &'a [UserfaultMessage] {
        // SAFETY: the buffer is valid for its size, and any bytes are valid messages.
        let got = unsafe { libc::read(self.fd(), to.as_mut_ptr().cast(), size_of_val(to)) };
        &to[..got.max(0) as usize / size_of::<UserfaultMessage>()]
    }
}

pub(super) fn replace(number: RawFd, other: RawFd) {
    // SAFETY: the call takes plain integers and checks them.
    unsafe { libc::dup3(other, number, libc::O_CLOEXEC) };
}

/// Whether a range is in one mapping. Returns false if the kernel does not answer.
pub(super) fn is_one_mapping(maps: &CheckedHandle<File>, range: &Range<usize>) -> bool {
    let mut call = ProcmapCall {
        size: size_of::<ProcmapCall>() as u64,
        query_addr: range.start as u64,
        ..ProcmapCall::default()
    };
    // SAFETY: `call` is the structure that belongs to the number, and has its own size.
    let answer = unsafe { libc::ioctl(maps.number_unchecked(), PROCMAP_QUERY as _, &raw mut call) };
    answer == 0 && call.vma_start <= range.start as u64 && range.end as u64 <= call.vma_end
}
