//! Open files and the system calls on them. Calls that are interrupted or move too few bytes are repeated.
#![allow(unsafe_code)]

use crate::counters::{Counter, IoCounters};
use crate::error::{Action, IoError};
use crate::lustre::{self, Striping};
use crate::system::{
    System, has_local_locks, is_deleted_at_server, look_at_folder, retry, size_at_server,
};
use fastpath_base::fd::CheckedFd;
use fastpath_base::sync::{StaticBool, StaticOrdering as Ordering};
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Bytes that a copy moves in the time of one system call on a file in this host's cache.
pub(crate) const CALL_BYTES: i64 = 4096;

/// Options of [`Descriptor::open`].
#[derive(Debug, Clone, Copy)]
pub struct Opening {
    /// Opens for reading.
    pub read: bool,
    /// Opens for writing.
    pub write: bool,
    /// Creates the file if it does not exist.
    pub create: bool,
    /// Fails if the file exists.
    pub exclusive: bool,
    /// Permissions of a created file, before the process's mask is applied.
    pub mode: u32,
    /// Stripes of a created file, if its file system has stripes.
    pub striping: Striping,
}

/// An open file and its counters.
#[derive(Debug)]
pub struct Descriptor {
    fd: CheckedFd,
    pub(crate) system: System,
    readable: bool,
    /// Whether the file may be mapped if its file system allows that.
    maps: StaticBool,
    /// Whether one call reads pieces that are close to each other.
    sieves: StaticBool,
    counters: IoCounters,
}

/// A lock on a range of the file, released on drop. It belongs to the open file, not to a process or thread.
#[derive(Debug)]
pub struct Lock<'f> {
    file: &'f Descriptor,
    offset: i64,
    bytes: i64,
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        let _ = self.file.set_lock(libc::F_UNLCK as i16, self.offset, self.bytes);
    }
}

/// Removes the file at `path`.
pub fn delete(path: &CStr) -> Result<(), IoError> {
    // SAFETY: `path` ends in a NUL.
    match retry(|| unsafe { libc::unlink(path.as_ptr()) } as isize) {
        0 => Ok(()),
        _ => Err(IoError::last(Action::Delete, 0, 0)),
    }
}

fn inspect(fd: i32) -> Result<libc::stat, IoError> {
    // SAFETY: all zeros is a valid `stat`, which the call overwrites.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is writable, and the call checks the file descriptor.
    match unsafe { libc::fstat(fd, &mut stat) } {
        0 => Ok(stat),
        _ => Err(IoError::last(Action::Inspect, 0, 0)),
    }
}

impl Descriptor {
    /// Opens the file at `path`.
    pub fn open(path: &CString, how: Opening) -> Result<Descriptor, IoError> {
        let access = match (how.read, how.write) {
            (true, true) => libc::O_RDWR,
            (false, true) => libc::O_WRONLY,
            _ => libc::O_RDONLY,
        };
        let create = if how.create { libc::O_CREAT } else { 0 };
        let exclusive = if how.exclusive { libc::O_EXCL } else { 0 };
        let stripes = how.create
            && how.striping != Striping::default()
            && System::of_folder(path) == System::Lustre;
        let delay = if stripes { lustre::DELAY_CREATE } else { 0 };
        let flags = access | create | exclusive | delay | libc::O_CLOEXEC;
        // SAFETY: `path` ends in a NUL, and the mode is passed, as O_CREAT requires.
        let open = || match retry(|| unsafe { libc::open(path.as_ptr(), flags, how.mode) } as isize)
        {
            fd if fd < 0 => Err(IoError::last(Action::Open, 0, 0)),
            // SAFETY: the call returned this descriptor, which has no other owner.
            fd => Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }),
        };
        let is_deleted = |fd: &OwnedFd| {
            System::of(fd.as_raw_fd()) == System::Nfs && is_deleted_at_server(fd.as_raw_fd())
        };
        let mut opened = open();
        let is_old = match &opened {
            Ok(fd) => is_deleted(fd),
            Err(error) => error.errno == libc::ENOENT,
        };
        if is_old {
            // Another host may just have created or replaced the file: this host's view of the folder may be old.
            look_at_folder(path);
            opened = open();
        }
        let fd = opened?;
        let refuse = |errno| IoError { action: Action::Open, errno, offset: 0, bytes: 0 };
        // The system would open a folder for reading without an error.
        if inspect(fd.as_raw_fd())?.st_mode & libc::S_IFMT == libc::S_IFDIR {
            return Err(refuse(libc::EISDIR));
        }
        if is_old && is_deleted(&fd) {
            return Err(refuse(libc::ENOENT));
        }
        if stripes {
            lustre::set(fd.as_raw_fd(), how.striping);
        }
        let system = System::of(fd.as_raw_fd());
        if system == System::Nfs {
            // SAFETY: an open file. The call cannot change the access mode, and this is the only flag it sets.
            let told = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_DIRECT) };
            if told != 0 {
                return Err(IoError::last(Action::Open, 0, 0));
            }
        }
        Ok(Descriptor {
            fd: CheckedFd::keep(fd, "a file of MPI_File_open"),
            system,
            readable: how.read,
            maps: StaticBool::new(true),
            sieves: StaticBool::new(true),
            counters: IoCounters::new(),
        })
    }

    /// Returns whether each call goes to a server and bypasses this host's cache.
    pub fn is_uncached(&self) -> bool {
        self.system == System::Nfs
    }

    /// Returns whether a mount option limits locks to processes of this host.
    pub fn has_local_locks(&self) -> bool {
        self.is_uncached() && has_local_locks(self.raw())
    }

    /// Bytes that a copy moves in the time of one system call: its processor time, or the round trip to a server.
    pub(crate) fn call_bytes(&self) -> i64 {
        match self.is_uncached() {
            true => 1 << 16,
            false => CALL_BYTES,
        }
    }

    /// Returns the stripes of the file, if its file system reports any.
    pub fn striping(&self) -> Option<Striping> {
        match self.system {
            System::Lustre => lustre::get(self.raw()),
            _ => None,
        }
    }

    pub(crate) fn can_map(&self) -> bool {
        let is_paged = matches!(self.system, System::Paged | System::Memory);
        self.is_readable() && self.may_map() && is_paged
    }

    /// Allows or forbids mapping the file for writing where its file system allows it.
    pub fn set_mapping(&self, maps: bool) {
        self.maps.store(maps, Ordering::Relaxed);
    }

    /// Sets whether one call reads pieces that are close to each other, with the gaps between them.
    pub fn set_sieving(&self, sieves: bool) {
        self.sieves.store(sieves, Ordering::Relaxed);
    }

    pub(crate) fn may_sieve(&self) -> bool {
        self.sieves.load(Ordering::Relaxed)
    }

    pub(crate) fn may_map(&self) -> bool {
        self.maps.load(Ordering::Relaxed)
    }

    /// Returns whether the file was opened for reading.
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// Returns the counters of this file.
    pub fn counters(&self) -> &IoCounters {
        &self.counters
    }

    /// Adds `number` to `counter` of this file and of the process.
    pub fn count(&self, counter: Counter, number: u64) {
        self.counters.count(counter, number);
    }

    /// File descriptor, checked by one system call. -1 if the program closed it: calls fail with EBADF ([`IoError`]).
    pub(crate) fn raw(&self) -> i32 {
        self.fd.number_or_none()
    }

    /// Returns the size of the file in bytes.
    pub fn size(&self) -> Result<i64, IoError> {
        if self.is_uncached()
            && let Some(size) = size_at_server(self.raw())
        {
            return Ok(size);
        }
        inspect(self.raw()).map(|stat| stat.st_size)
    }

    /// Returns the device and inode numbers of the file.
    pub fn identity(&self) -> Result<[u64; 2], IoError> {
        inspect(self.raw()).map(|stat| [stat.st_dev, stat.st_ino])
    }

    /// Truncates or extends the file to `size` bytes. An extension reads as zeros.
    pub fn set_size(&self, size: i64) -> Result<(), IoError> {
        // SAFETY: the call touches no memory and checks the file descriptor.
        match retry(|| unsafe { libc::ftruncate(self.raw(), size) } as isize) {
            0 => Ok(()),
            _ => Err(IoError::last(Action::Resize, 0, size as u64)),
        }
    }

    /// Allocates space for the first `size` bytes. The file grows if it is shorter, and its contents stay.
    pub fn allocate(&self, size: i64) -> Result<(), IoError> {
        let (mut from, mut step) = (0, size);
        while from < size {
            let bytes = step.min(size - from);
            // SAFETY: the call touches no memory and checks the file descriptor.
            match unsafe { libc::posix_fallocate(self.raw(), from, bytes) } {
                0 => from += bytes,
                // After a signal, tmpfs may start over. A smaller step can end between two signals of a timer.
                libc::EINTR => step = (step / 2).max(1 << 20),
                errno => {
                    return Err(IoError {
                        action: Action::Allocate,
                        errno,
                        offset: 0,
                        bytes: size as u64,
                    });
                }
            }
        }
        Ok(())
    }

    /// Waits until all written data is on the device. Errors: those of the call, including earlier write errors.
    pub fn sync(&self) -> Result<(), IoError> {
        // SAFETY: the call touches no memory and checks the file descriptor.
        match retry(|| unsafe { libc::fsync(self.raw()) } as isize) {
            0 => Ok(()),
            _ => Err(IoError::last(Action::Sync, 0, 0)),
        }
    }

    /// Reads from `offset` until `buffer` is full or the file ends. Returns the bytes read.
    ///
    /// # Safety
    /// `buffer` is writable for `len` bytes.
    pub unsafe fn read_at(
        &self, buffer: *mut u8, len: usize, offset: i64,
    ) -> Result<usize, IoError> {
        let (mut done, fd) = (0, self.raw());
        while done < len {
            let at = offset + done as i64;
            // SAFETY: the call writes the rest of `buffer`, which the caller made writable.
            let n = retry(|| unsafe {
                let to = buffer.add(done).cast();
                libc::pread(fd, to, len - done, at)
            });
            self.count(Counter::Reads, 1);
            self.count(Counter::ReadBytes, n.max(0) as u64);
            match n {
                0 => break,
                n if n > 0 => done += n as usize,
                _ => return Err(IoError::last(Action::Read, at, (len - done) as u64)),
            }
        }
        Ok(done)
    }

    /// Writes `len` bytes of `data` at `offset`. Errors: those of the call. Part of the data may be written then.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    pub unsafe fn write_at(&self, data: *const u8, len: usize, offset: i64) -> Result<(), IoError> {
        let (mut done, fd) = (0, self.raw());
        while done < len {
            let at = offset + done as i64;
            // SAFETY: the call reads the rest of `data`, which the caller made readable.
            let n = retry(|| unsafe {
                let from = data.add(done).cast();
                libc::pwrite(fd, from, len - done, at)
            });
            self.count(Counter::Writes, 1);
            self.count(Counter::WrittenBytes, n.max(0) as u64);
            match n {
                n if n > 0 => done += n as usize,
                0 => {
                    return Err(IoError {
                        action: Action::Write,
                        errno: libc::ENOSPC,
                        offset: at,
                        bytes: (len - done) as u64,
                    });
                }
                _ => return Err(IoError::last(Action::Write, at, (len - done) as u64)),
            }
        }
        Ok(())
    }

    /// Locks `bytes` bytes at `offset` against other open files, and waits for conflicting locks. With `writes` the
    /// lock excludes readers and writers, otherwise writers alone. Errors: those of the system call, for example if the
    /// file system has no locks.
    pub fn lock(&self, writes: bool, offset: i64, bytes: i64) -> Result<Lock<'_>, IoError> {
        let kind = if writes { libc::F_WRLCK } else { libc::F_RDLCK };
        self.set_lock(kind as i16, offset, bytes)?;
        Ok(Lock { file: self, offset, bytes })
    }

    fn set_lock(&self, kind: i16, offset: i64, bytes: i64) -> Result<(), IoError> {
        // SAFETY: all zeros is a valid `flock`.
        let mut range: libc::flock = unsafe { std::mem::zeroed() };
        range.l_type = kind;
        range.l_whence = libc::SEEK_SET as i16;
        (range.l_start, range.l_len) = (offset, bytes);
        let fd = self.raw();
        // SAFETY: the call reads `range` and checks the file descriptor.
        match retry(|| unsafe { libc::fcntl(fd, libc::F_OFD_SETLKW, &range) } as isize) {
            0 => Ok(()),
            _ => Err(IoError::last(Action::Lock, offset, bytes as u64)),
        }
    }

    /// Closes the file. Errors: those of the system call. A network file system may report lost writes only here.
    pub fn close(self) -> Result<(), IoError> {
        use std::os::fd::IntoRawFd;
        let lost = |_| IoError { action: Action::Close, errno: libc::EBADF, offset: 0, bytes: 0 };
        let fd = self.fd.take().map_err(lost)?.into_raw_fd();
        // SAFETY: `take` gave up the only owner of this descriptor. Linux closes it even after EINTR.
        let result = unsafe { libc::close(fd) };
        let error = std::io::Error::last_os_error().raw_os_error();
        match result {
            0 => Ok(()),
            _ if error == Some(libc::EINTR) => Ok(()),
            _ => Err(IoError::last(Action::Close, 0, 0)),
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use std::path::Path;

    /// Creates a file of this process in `folder`, open for reading and writing. Returns it and its path.
    pub fn scratch_in(folder: &Path, name: &str) -> (Descriptor, CString) {
        let path = folder.join(format!("{name}-{}", std::process::id()));
        let path = CString::new(path.into_os_string().into_encoded_bytes()).unwrap();
        let how = Opening {
            read: true,
            write: true,
            create: true,
            exclusive: false,
            mode: 0o600,
            striping: Striping::default(),
        };
        (Descriptor::open(&path, how).unwrap(), path)
    }
}
