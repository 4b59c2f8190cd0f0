//! An open file, and the system calls on it: repeated where they were interrupted or moved less than asked.
#![allow(unsafe_code)]

use crate::counters::{Counter, Counters};
use crate::error::{Action, IoError};
use crate::lustre::{self, Striping};
use crate::system::{
    System, has_local_locks, is_deleted_at_server, look_at_folder, size_at_server,
};
use fastpath_base::fd::CheckedFd;
use fastpath_base::sync::{StaticBool, StaticOrdering as Ordering};
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Bytes that a call on a file in this host's cache costs as much as copying.
pub(crate) const CALL_BYTES: i64 = 4096;

/// How a file is opened.
#[derive(Debug, Clone, Copy)]
pub struct Opening {
    /// Bytes can be read.
    pub read: bool,
    /// Bytes can be written.
    pub write: bool,
    /// The file is made where there is none.
    pub create: bool,
    /// There must be none.
    pub exclusive: bool,
    /// Permissions of a file that is made, before the process's mask.
    pub mode: u32,
    /// Stripes of a file that is made, where its file system has any.
    pub striping: Striping,
}

/// An open file.
#[derive(Debug)]
pub struct Descriptor {
    fd: CheckedFd,
    pub(crate) system: System,
    readable: bool,
    /// Whether it may be mapped where its file system allows that.
    maps: StaticBool,
    /// Whether pieces that lie close together are read by one call.
    sieves: StaticBool,
    counters: Counters,
}

/// A lock on a range of the file, held until it is dropped: by the open file, whichever process and thread has it.
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

/// Removes a file.
///
/// # Errors
/// The system's.
pub fn delete(path: &CStr) -> Result<(), IoError> {
    // SAFETY: a string that ends in a NUL.
    match retry(|| unsafe { libc::unlink(path.as_ptr()) } as isize) {
        0 => Ok(()),
        _ => Err(IoError::last(Action::Delete, 0, 0)),
    }
}

/// Repeats a call that a signal has interrupted.
pub(crate) fn retry(mut call: impl FnMut() -> isize) -> isize {
    loop {
        let result = call();
        let is_interrupted =
            result < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR);
        if !is_interrupted {
            return result;
        }
    }
}

/// What the system knows of an open file.
fn inspect(fd: i32) -> Result<libc::stat, IoError> {
    // SAFETY: zeros are a value of it, which the call replaces.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: an open file and a variable of that type.
    match unsafe { libc::fstat(fd, &mut stat) } {
        0 => Ok(stat),
        _ => Err(IoError::last(Action::Inspect, 0, 0)),
    }
}

impl Descriptor {
    /// Opens a file.
    ///
    /// # Errors
    /// The system's.
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
        // SAFETY: a string that ends in a NUL; the mode is what O_CREAT wants.
        let open = || match retry(|| unsafe { libc::open(path.as_ptr(), flags, how.mode) } as isize)
        {
            fd if fd < 0 => Err(IoError::last(Action::Open, 0, 0)),
            // SAFETY: just opened, and nobody else knows it.
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
            // Another host may just have made it, or have deleted it and made another.
            look_at_folder(path);
            opened = open();
        }
        let fd = opened?;
        let refuse = |errno| IoError { action: Action::Open, errno, offset: 0, bytes: 0 };
        // The system opens it for reading.
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
            // SAFETY: an open file; the access mode cannot be changed by this, and no other flag is set.
            let told = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_DIRECT) };
            if told != 0 {
                return Err(IoError::last(Action::Open, 0, 0));
            }
        }
        Ok(Descriptor {
            fd: CheckedFd::keep(fd, "a file that MPI_File_open opened"),
            system,
            readable: how.read,
            maps: StaticBool::new(true),
            sieves: StaticBool::new(true),
            counters: Counters::new(),
        })
    }

    /// Whether each call goes to a server, past this host's cache.
    pub fn is_uncached(&self) -> bool {
        self.system == System::Nfs
    }

    /// Whether locks keep out this host's processes alone, by an option of the mount.
    pub fn has_local_locks(&self) -> bool {
        self.is_uncached() && has_local_locks(self.raw())
    }

    /// Bytes that a call costs as much as copying: what it takes of a processor, or the way to a server and back.
    pub(crate) fn call_bytes(&self) -> i64 {
        match self.is_uncached() {
            true => 1 << 16,
            false => CALL_BYTES,
        }
    }

    /// Stripes of the file, where its file system has any and says so.
    pub fn striping(&self) -> Option<Striping> {
        match self.system {
            System::Lustre => lustre::get(self.raw()),
            _ => None,
        }
    }

    /// Whether it can be mapped to be written.
    pub(crate) fn can_map(&self) -> bool {
        let is_paged = matches!(self.system, System::Paged | System::Memory);
        self.is_readable() && self.may_map() && is_paged
    }

    /// Whether it may be mapped to be written, where its file system allows that.
    pub fn set_mapping(&self, maps: bool) {
        self.maps.store(maps, Ordering::Relaxed);
    }

    /// Whether pieces that lie close together are read by one call, with what is between them.
    pub fn set_sieving(&self, sieves: bool) {
        self.sieves.store(sieves, Ordering::Relaxed);
    }

    /// As [`Descriptor::set_sieving`] has said.
    pub(crate) fn may_sieve(&self) -> bool {
        self.sieves.load(Ordering::Relaxed)
    }

    /// As [`Descriptor::set_mapping`] has said.
    pub(crate) fn may_map(&self) -> bool {
        self.maps.load(Ordering::Relaxed)
    }

    /// Whether it was opened to be read, too.
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// What was done with this file.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts something of this file and of the process.
    pub fn count(&self, counter: Counter, number: u64) {
        self.counters.count(counter, number);
    }

    /// The system's number, compared by one system call. -1 if the program closed it: what is done with that fails with
    /// EBADF, which [`IoError`] explains.
    pub(crate) fn raw(&self) -> i32 {
        self.fd.number_or_none()
    }

    /// Bytes in the file.
    ///
    /// # Errors
    /// The system's.
    pub fn size(&self) -> Result<i64, IoError> {
        if self.is_uncached()
            && let Some(size) = size_at_server(self.raw())
        {
            return Ok(size);
        }
        inspect(self.raw()).map(|stat| stat.st_size)
    }

    /// Device and number by which the system knows the file.
    ///
    /// # Errors
    /// The system's.
    pub fn identity(&self) -> Result<[u64; 2], IoError> {
        inspect(self.raw()).map(|stat| [stat.st_dev, stat.st_ino])
    }

    /// Makes the file as long as said: cut, or with zeros at its end.
    ///
    /// # Errors
    /// The system's.
    pub fn set_size(&self, size: i64) -> Result<(), IoError> {
        // SAFETY: an open file.
        match retry(|| unsafe { libc::ftruncate(self.raw(), size) } as isize) {
            0 => Ok(()),
            _ => Err(IoError::last(Action::Resize, 0, size as u64)),
        }
    }

    /// Allocates space for the first `size` bytes; the file becomes longer where it has fewer, and what is in it stays.
    ///
    /// # Errors
    /// The system's.
    pub fn allocate(&self, size: i64) -> Result<(), IoError> {
        let (mut from, mut step) = (0, size);
        while from < size {
            let bytes = step.min(size - from);
            // SAFETY: an open file.
            match unsafe { libc::posix_fallocate(self.raw(), from, bytes) } {
                0 => from += bytes,
                // On tmpfs it may begin anew: less of it ends between two signals of a timer.
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

    /// Returns when all that was written is on the device.
    ///
    /// # Errors
    /// The system's, those of earlier writes among them.
    pub fn sync(&self) -> Result<(), IoError> {
        // SAFETY: an open file.
        match retry(|| unsafe { libc::fsync(self.raw()) } as isize) {
            0 => Ok(()),
            _ => Err(IoError::last(Action::Sync, 0, 0)),
        }
    }

    /// Reads from `offset` until `buffer` is full or the file ends; the bytes read.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Safety
    /// `buffer` is writable for `len` bytes.
    pub unsafe fn read_at(
        &self, buffer: *mut u8, len: usize, offset: i64,
    ) -> Result<usize, IoError> {
        let (mut done, fd) = (0, self.raw());
        while done < len {
            let at = offset + done as i64;
            // SAFETY: an open file; the rest of the caller's buffer.
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

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// The system's; a part may be in the file then.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    pub unsafe fn write_at(&self, data: *const u8, len: usize, offset: i64) -> Result<(), IoError> {
        let (mut done, fd) = (0, self.raw());
        while done < len {
            let at = offset + done as i64;
            // SAFETY: an open file; the rest of the caller's data.
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

    /// Locks `bytes` bytes at `offset` against other open files: against readers and writers to write, against writers
    /// alone to read. Waits for those that hold a lock.
    ///
    /// # Errors
    /// The system's: the file system has no locks, say.
    pub fn lock(&self, writes: bool, offset: i64, bytes: i64) -> Result<Lock<'_>, IoError> {
        let kind = if writes { libc::F_WRLCK } else { libc::F_RDLCK };
        self.set_lock(kind as i16, offset, bytes)?;
        Ok(Lock { file: self, offset, bytes })
    }

    fn set_lock(&self, kind: i16, offset: i64, bytes: i64) -> Result<(), IoError> {
        // SAFETY: zeros are a value of it.
        let mut range: libc::flock = unsafe { std::mem::zeroed() };
        range.l_type = kind;
        range.l_whence = libc::SEEK_SET as i16;
        (range.l_start, range.l_len) = (offset, bytes);
        let fd = self.raw();
        // SAFETY: a file, which the call checks, and a range.
        match retry(|| unsafe { libc::fcntl(fd, libc::F_OFD_SETLKW, &range) } as isize) {
            0 => Ok(()),
            _ => Err(IoError::last(Action::Lock, offset, bytes as u64)),
        }
    }

    /// Closes the file.
    ///
    /// # Errors
    /// The system's: what a network file system says only now.
    pub fn close(self) -> Result<(), IoError> {
        use std::os::fd::IntoRawFd;
        let lost = |_| IoError { action: Action::Close, errno: libc::EBADF, offset: 0, bytes: 0 };
        let fd = self.fd.take().map_err(lost)?.into_raw_fd();
        // SAFETY: an open file that nobody else has; after EINTR it is closed too on Linux.
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

    /// A new file of this process in a folder, to be read and written, and its name.
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
