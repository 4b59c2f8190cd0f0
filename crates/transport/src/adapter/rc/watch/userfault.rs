//! The kernel's part of the watch: what of `linux/userfaultfd.h` (Linux 6.18) and of `linux/fs.h` (`PROCMAP_QUERY`,
//! from Linux 6.11 on) is used. On processors whose ioctl numbers are others the kernel refuses, and nothing is
//! watched.
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
/// Bit of the calls that a registered range answers.
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

/// An event as the kernel writes it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Message {
    event: u8,
    reserved: [u8; 7],
    /// Of a move: from, to, length; else start and end.
    arg: [u64; 3],
}

const _: () = assert!(size_of::<Message>() == 32);
const _: () = assert!(size_of::<ProcmapCall>() == 0x68);
const _: () = assert!(size_of::<RegisterCall>() == 32);
const _: () = assert!(size_of::<ApiCall>() == 24 && size_of::<ProtectCall>() == 24);

impl Message {
    /// The addresses that do not mean what they did.
    pub(super) fn range(&self) -> Option<Range<usize>> {
        let [first, second, third] = self.arg.map(|value| value as usize);
        match self.event {
            MSG_REMAP => Some(first..first.saturating_add(third)),
            MSG_REMOVE | MSG_UNMAP => Some(first..second),
            _ => None,
        }
    }
}

/// Whether memory is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is, and nothing changes just now.
    Watched,
    /// Some of it is not.
    Foreign,
    /// Some memory of the process is just being unmapped.
    Changing,
}

/// A descriptor from which the kernel tells of changes of watched memory.
pub(super) struct Userfault(CheckedFd);

impl Userfault {
    /// # Errors
    /// The kernel has none, is too old (before 5.11), or does not allow it, as in a container.
    pub(super) fn open() -> io::Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: plain integers.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) } as RawFd;
        // SAFETY: a new descriptor without another owner, or -1.
        let this = Userfault(unsafe { CheckedFd::of_call(fd, "watching registered memory") }?);
        let mut call =
            ApiCall { api: API, features: EVENT_UNMAP | EVENT_REMAP | EVENT_REMOVE, ioctls: 0 };
        this.call(UFFDIO_API, &mut call)?;
        Ok(this)
    }

    fn call<T>(&self, number: u64, argument: &mut T) -> io::Result<()> {
        // SAFETY: every number here comes with the structure that belongs to it.
        match unsafe { libc::ioctl(self.fd(), number as _, &raw mut *argument) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.number_unchecked()
    }

    /// Watches whole pages. Nothing is write-protected, so that no access is ever held up.
    ///
    /// # Errors
    /// The kernel cannot watch such memory, or the program itself does by a userfaultfd of its own.
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

    /// Ends the watch, and lets threads go on that wait for a report to be read. The descriptor's number becomes one
    /// more of `other`'s file, so that no other file gets it meanwhile.
    pub(super) fn end(&self, other: RawFd) {
        if self.0.is_ours() {
            replace(self.fd(), other);
        }
    }

    /// Asks of whole pages, which nobody else watches, by protecting none of them. It is also refused from before some
    /// memory is unmapped until the one who does it goes on after its event was read.
    pub(super) fn ask(&self, range: &Range<usize>) -> Answer {
        let mut call = ProtectCall { start: range.start as u64, len: range.len() as u64, mode: 0 };
        match self.call(UFFDIO_WRITEPROTECT, &mut call) {
            Ok(()) => Answer::Watched,
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Answer::Changing,
            Err(_) => Answer::Foreign,
        }
    }

    /// Reads events; whoever made them goes on meanwhile.
    pub(super) fn read<'a>(&self, to: &'a mut [Message]) -> &'a [Message] {
        // SAFETY: the messages are plain integers.
        let got = unsafe { libc::read(self.fd(), to.as_mut_ptr().cast(), size_of_val(to)) };
        &to[..got.max(0) as usize / size_of::<Message>()]
    }
}

/// Makes a number one more of another descriptor's file. May be called after a fork.
pub(super) fn replace(number: RawFd, other: RawFd) {
    // SAFETY: plain descriptors, which the call checks.
    unsafe { libc::dup3(other, number, libc::O_CLOEXEC) };
}

/// Whether all of a range lies in one mapping. False where the kernel does not say.
pub(super) fn is_one_mapping(maps: &CheckedHandle<File>, range: &Range<usize>) -> bool {
    let mut call = ProcmapCall {
        size: size_of::<ProcmapCall>() as u64,
        query_addr: range.start as u64,
        ..ProcmapCall::default()
    };
    // SAFETY: the structure that belongs to the number, of the size that it says.
    let answer = unsafe { libc::ioctl(maps.number_unchecked(), PROCMAP_QUERY as _, &raw mut call) };
    answer == 0 && call.vma_start <= range.start as u64 && range.end as u64 <= call.vma_end
}
