//! Devices: list, open, attributes and events.
#![allow(unsafe_code)]

use super::abi::{self, AsyncEvent, DeviceAttr, GidEntry, PortAttr};
use super::call::{check, make, unmake};
use super::error::{VerbsCall, VerbsError};
use super::library::Library;
use fastpath_base::sync::{AtomicU32, Ordering};
use std::ffi::CStr;
use std::mem::{offset_of, size_of};
use std::ptr::NonNull;
use std::sync::Arc;

/// An open device.
pub struct DeviceContext {
    pub(super) raw: NonNull<abi::Context>,
    pub(super) library: &'static Library,
    name: String,
    attributes: DeviceAttr,
    /// What [`DeviceContext::look`] has found. `lost`: code of a fatal event. `changes`: number of changes.
    lost: AtomicU32,
    changes: AtomicU32,
}

/// Events of a device since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct News {
    /// Cause of the device's failure, if it has failed.
    pub lost: Option<&'static str>,
    /// Number of changes of the device's ports and failures of its queue pairs.
    pub changes: u32,
}

/// Value of `lost` if the device no longer reports events to this process.
const CLOSED: u32 = u32::MAX;
/// Value of `lost` without a fatal event.
const NEVER: u32 = u32::MAX - 1;

// SAFETY: ANY THREAD: verbs calls may come from any thread.
unsafe impl Send for DeviceContext {}
// SAFETY: ANY THREAD: verbs calls may come from any thread.
unsafe impl Sync for DeviceContext {}

struct DeviceList {
    raw: NonNull<*mut abi::Device>,
    len: usize,
    library: &'static Library,
}

impl DeviceList {
    fn read(library: &'static Library) -> Result<DeviceList, VerbsError> {
        let mut len = 0;
        // SAFETY: the call only writes to `len`, which is a local variable.
        let read =
            make(VerbsCall::ListDevices, "", || unsafe { (library.get_device_list)(&mut len) });
        match read {
            Ok(raw) => Ok(DeviceList { raw, len: len.max(0) as usize, library }),
            // The kernel has no RDMA support, or shows no device to this container.
            Err(VerbsError::Call { errno, .. }) if errno == libc::ENOSYS => {
                Err(VerbsError::NoDevice)
            }
            Err(error) => Err(error),
        }
    }

    fn devices(&self) -> impl Iterator<Item = (String, *mut abi::Device)> {
        (0..self.len).map(|index| {
            // SAFETY: the list has `len` entries, each a device that lives as long as the list.
            let device = unsafe { *self.raw.as_ptr().add(index) };
            // SAFETY: the list is alive, and the name ends with a zero.
            let name = unsafe { CStr::from_ptr((*device).name.as_ptr()) };
            (name.to_string_lossy().into_owned(), device)
        })
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: `get_device_list` made it, and open devices stay open.
        unsafe { (self.library.free_device_list)(self.raw.as_ptr()) };
        unmake(0);
    }
}

/// Names of all devices, in the library's order; empty if there are none.
///
/// # Errors
/// The list cannot be read.
pub fn list_devices(library: &'static Library) -> Result<Vec<String>, VerbsError> {
    match DeviceList::read(library) {
        Ok(list) => Ok(list.devices().map(|(name, _)| name).collect()),
        Err(VerbsError::NoDevice) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Reason why a device cannot be opened. If rdma-core cannot open the device file, it tries other paths and returns
/// their error, `ENOENT`. Opens the file to find the actual error.
fn name_cause(error: VerbsError, name: &str) -> VerbsError {
    let VerbsError::Call { errno: libc::ENOENT, step, .. } = error else {
        return error;
    };
    let refused = std::fs::read_dir("/sys/class/infiniband_verbs").ok().and_then(|entries| {
        let of_device = |entry: &std::fs::DirEntry| {
            let device = std::fs::read_to_string(entry.path().join("ibdev"));
            device.is_ok_and(|device| device.trim() == name)
        };
        let entry = entries.flatten().find(of_device)?;
        let file = std::path::Path::new("/dev/infiniband").join(entry.file_name());
        let opened = std::fs::File::options().read(true).write(true).open(file);
        opened.err()?.raw_os_error()
    });
    VerbsError::call(step, name, refused.unwrap_or(libc::ENOENT))
}

impl DeviceContext {
    /// Opens the device of that name.
    ///
    /// # Errors
    /// No such device (with the existing names), or it cannot be opened.
    pub fn open(library: &'static Library, name: &str) -> Result<Arc<DeviceContext>, VerbsError> {
        let list = DeviceList::read(library)?;
        let Some((_, device)) = list.devices().find(|(found, _)| found == name) else {
            return Err(VerbsError::UnknownDevice {
                wanted: name.to_owned(),
                present: list.devices().map(|(name, _)| name).collect(),
            });
        };
        // SAFETY: the list has the device, and is freed only after the call.
        let raw = make(VerbsCall::OpenDevice, name, || unsafe { (library.open_device)(device) })
            .map_err(|error| name_cause(error, name))?;
        let mut context = DeviceContext {
            raw,
            library,
            name: name.to_owned(),
            // SAFETY: a structure of numbers, for which all zeros is valid.
            attributes: unsafe { std::mem::zeroed() },
            lost: AtomicU32::new(NEVER),
            changes: AtomicU32::new(0),
        };
        let attributes = &mut context.attributes;
        check(VerbsCall::QueryDevice, name, || {
            // SAFETY: the context is open, and the structure is writable.
            unsafe { (library.query_device)(raw.as_ptr(), attributes) }
        })?;
        // A read of events must not block this process. SAFETY: the context is open; the calls read and set flags of
        // its descriptor.
        unsafe {
            let fd = (*raw.as_ptr()).async_fd;
            let flags = libc::fcntl(fd, libc::F_GETFL);
            if fd >= 0 && flags >= 0 {
                libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
            }
        }
        Ok(Arc::new(context))
    }

    /// Device name, such as `mlx5_0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Device limits.
    pub fn attributes(&self) -> &DeviceAttr {
        &self.attributes
    }

    /// Firmware version, as the device reports it.
    pub fn firmware(&self) -> String {
        let bytes = self.attributes.fw_ver.iter().map(|&c| c as u8);
        String::from_utf8_lossy(&bytes.take_while(|&c| c != 0).collect::<Vec<u8>>()).into_owned()
    }

    /// Number of ports; the first is 1.
    pub fn ports(&self) -> u8 {
        self.attributes.phys_port_cnt
    }

    /// Attributes of a port.
    ///
    /// # Errors
    /// No such port, or the device is gone.
    pub fn query_port(&self, port: u8) -> Result<PortAttr, VerbsError> {
        // SAFETY: a structure of numbers, for which all zeros is valid.
        let mut attributes: PortAttr = unsafe { std::mem::zeroed() };
        check(VerbsCall::QueryPort, &self.name, || {
            // SAFETY: the context is open; the structure is writable and of the given size.
            unsafe {
                match extended_query_port(self.raw.as_ptr()) {
                    Some(query) => {
                        query(self.raw.as_ptr(), port, &mut attributes, size_of::<PortAttr>())
                    }
                    // The library's own call fills a shorter structure than the provider's extended call does.
                    None => (self.library.query_port)(self.raw.as_ptr(), port, &mut attributes),
                }
            }
        })?;
        Ok(attributes)
    }

    /// Nonempty rows of a port's GID table, in order.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn gid_table(&self, port: u8) -> Result<Vec<GidEntry>, VerbsError> {
        let len = self.query_port(port)?.gid_tbl_len.max(0) as u32;
        if let Some(table) = self.whole_gid_table(port, len as usize)? {
            return Ok(table);
        }
        let mut table = Vec::new();
        for index in 0..len {
            match self.query_gid(port, index) {
                Ok(entry) if entry.gid.raw != [0; 16] => table.push(entry),
                Ok(_) => {}
                // Some releases return an error for an empty row.
                Err(error) if [libc::ENODATA, libc::EINVAL].contains(&error.errno()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(table)
    }

    fn whole_gid_table(&self, port: u8, len: usize) -> Result<Option<Vec<GidEntry>>, VerbsError> {
        let Some(query) = self.library.query_gid_table else {
            return Ok(None);
        };
        let mut table = vec![GidEntry::default(); len * self.ports() as usize];
        let mut filled = 0;
        let asked = check(VerbsCall::QueryGid, &self.name, || {
            // SAFETY: the context is open; the table is writable for its length.
            filled = unsafe {
                query(self.raw.as_ptr(), table.as_mut_ptr(), table.len(), 0, size_of::<GidEntry>())
            };
            if filled < 0 { -filled as i32 } else { 0 }
        });
        match asked {
            Ok(()) => {
                table.truncate(filled as usize);
                table.retain(|entry| entry.port_num == port as u32 && entry.gid.raw != [0; 16]);
                Ok(Some(table))
            }
            Err(error) if [libc::EOPNOTSUPP, libc::ENOSYS].contains(&error.errno()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn query_gid(&self, port: u8, index: u32) -> Result<GidEntry, VerbsError> {
        let mut entry = GidEntry { gid_index: index, port_num: port as u32, ..GidEntry::default() };
        check(VerbsCall::QueryGid, &self.name, || {
            match self.library.query_gid_ex {
                // SAFETY: the context is open; the entry is writable and of the given size.
                Some(query) => unsafe {
                    query(
                        self.raw.as_ptr(),
                        port as u32,
                        index,
                        &mut entry,
                        0,
                        size_of::<GidEntry>(),
                    )
                },
                None => {
                    entry.gid_type = self.gid_type(port, index);
                    // SAFETY: the context is open, and the GID is writable.
                    unsafe {
                        (self.library.query_gid)(
                            self.raw.as_ptr(),
                            port,
                            index as i32,
                            &mut entry.gid,
                        )
                    }
                }
            }
        })?;
        Ok(entry)
    }

    fn gid_type(&self, port: u8, index: u32) -> u32 {
        let path =
            format!("/sys/class/infiniband/{}/ports/{port}/gid_attrs/types/{index}", self.name);
        match std::fs::read_to_string(path) {
            Ok(text) if text.starts_with("RoCE v2") => abi::GID_TYPE_ROCE_V2,
            // The kernel has this one name for RoCE v1 and InfiniBand.
            Ok(text) if text.starts_with("IB/RoCE v1") => abi::GID_TYPE_ROCE_V1,
            _ => abi::GID_TYPE_IB,
        }
    }

    /// Reads the events of the device, its ports and queues. Makes a system call that does not block.
    pub fn look(&self) -> News {
        // Relaxed suffices for all accesses: the numbers publish no other data.
        loop {
            match self.next_event() {
                Ok(event) if ends_the_device(event.event_type) => {
                    self.lost.store(event.event_type as u32, Ordering::Relaxed);
                }
                Ok(event) if tells_of_a_change(event.event_type) => {
                    self.changes.fetch_add(1, Ordering::Relaxed);
                }
                Ok(_) => {}
                Err(libc::EIO | libc::ENODEV) => {
                    let (old, new, order) = (NEVER, CLOSED, Ordering::Relaxed);
                    let _ = self.lost.compare_exchange(old, new, order, order);
                    break;
                }
                Err(_) => break,
            }
        }
        let lost = match self.lost.load(Ordering::Relaxed) {
            NEVER => None,
            code if code == abi::EVENT_CQ_ERR as u32 => Some("a completion queue has failed"),
            code if code == abi::EVENT_SRQ_ERR as u32 => Some("a receive queue has failed"),
            _ => Some("the device is gone"),
        };
        let changes = self.changes.load(Ordering::Relaxed);
        News { lost, changes }
    }

    /// Whether a port or a queue pair has changed since `seen` was set; updates `seen`. See [`DeviceContext::look`].
    ///
    /// # Errors
    /// Message that the device has failed, with the cause.
    pub fn look_for_change(&self, seen: &mut u32) -> Result<bool, String> {
        let news = self.look();
        match news.lost {
            Some(why) => Err(format!("{}: {why}", self.name)),
            None => Ok(std::mem::replace(seen, news.changes) != news.changes),
        }
    }

    fn next_event(&self) -> Result<AsyncEvent, i32> {
        let mut event = AsyncEvent { element: 0, event_type: 0 };
        // SAFETY: the context is open, its descriptor does not block, and the event is writable.
        let answer = unsafe { (self.library.get_async_event)(self.raw.as_ptr(), &mut event) };
        if answer != 0 {
            let error = std::io::Error::last_os_error();
            return Err(error.raw_os_error().unwrap_or(0));
        }
        // Acknowledge at once, because a queue with unacknowledged events cannot be destroyed. SAFETY: the event was
        // just returned by the library.
        unsafe { (self.library.ack_async_event)(&mut event) };
        Ok(event)
    }

    pub(super) fn ops(&self) -> &abi::ContextOps {
        // SAFETY: the context is open, and its operations do not change.
        unsafe { &(*self.raw.as_ptr()).ops }
    }
}

fn ends_the_device(event: i32) -> bool {
    [abi::EVENT_DEVICE_FATAL, abi::EVENT_CQ_ERR, abi::EVENT_SRQ_ERR].contains(&event)
}

/// Whether an event is a change of a port, its addresses or a queue pair. Other events are normal progress (connection
/// established, stopped queue empty), or concern unused features (other paths, limits, subnet manager).
fn tells_of_a_change(event: i32) -> bool {
    [
        abi::EVENT_QP_FATAL,
        abi::EVENT_QP_REQ_ERR,
        abi::EVENT_QP_ACCESS_ERR,
        abi::EVENT_PORT_ACTIVE,
        abi::EVENT_PORT_ERR,
        abi::EVENT_LID_CHANGE,
        abi::EVENT_PKEY_CHANGE,
        abi::EVENT_GID_CHANGE,
        abi::EVENT_WQ_FATAL,
    ]
    .contains(&event)
}

impl Drop for DeviceContext {
    fn drop(&mut self) {
        // SAFETY: every object of the context holds a reference to `self`, so none is left.
        unmake(unsafe { (self.library.close_device)(self.raw.as_ptr()) });
    }
}

/// The provider's `query_port`, if the context has one (`verbs_get_ctx_op` of the header).
///
/// # Safety
/// `context` is open.
unsafe fn extended_query_port(
    context: *mut abi::Context,
) -> Option<unsafe extern "C" fn(*mut abi::Context, u8, *mut PortAttr, usize) -> i32> {
    // SAFETY: `context` is open, by this function's contract.
    if unsafe { (*context).abi_compat } as usize != usize::MAX {
        return None;
    }
    // SAFETY: the mark says that the context ends a larger structure, whose size is stored right before it.
    unsafe {
        let tail =
            context.byte_sub(offset_of!(abi::ContextTail, context)).cast::<abi::ContextTail>();
        match (&raw const (*tail).size).read() < size_of::<abi::ContextTail>() {
            true => None,
            false => (&raw const (*tail).query_port).read(),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::verbs::{fake, fault};

    #[test]
    fn list__leaves_nothing_behind() {
        let library = Library::load().unwrap();
        list_devices(library).unwrap();
        assert_eq!((fault::alive(), fault::take_seen()), (0, vec![VerbsCall::ListDevices]));
    }

    #[test]
    fn list__says_why_it_cannot_be_read() {
        let library = Library::load().unwrap();
        fault::arm(VerbsCall::ListDevices, 0, libc::EACCES);
        let error = list_devices(library).unwrap_err();
        assert_eq!(error.errno(), libc::EACCES);
        assert!(error.to_string().contains("/dev/infiniband"), "{error}");
        assert!(!fault::disarm());
    }

    #[test]
    fn look__tells_every_user_of_the_device_what_has_happened() {
        fake::set_conditions(fake::Conditions::default());
        let context = fake::open();
        let quiet = context.look();
        assert_eq!((quiet.lost, quiet.changes), (None, 0));
        for active in [false, true] {
            fake::set_conditions(fake::Conditions { active, ..fake::Conditions::default() });
        }
        let seen = context.look();
        assert_eq!((seen.lost, seen.changes), (None, 2));
        fake::remove_device();
        for _ in 0..2 {
            let seen = context.look();
            assert_eq!((seen.lost, seen.changes), (Some("the device is gone"), 2));
        }
    }

    #[test]
    fn look__counts_what_tells_of_a_change_and_acknowledges_all() {
        fake::set_conditions(fake::Conditions::default());
        let context = fake::open();
        fake::QUIET_EVENTS.into_iter().for_each(fake::report);
        assert_eq!((context.look().changes, fake::unacknowledged()), (0, 0));
        // The listed events are failures of a queue pair, or changes of a port's state and addresses.
        for (before, event) in [1, 2, 3, 9, 10, 11, 12, 18, 19].into_iter().enumerate() {
            fake::report(event);
            let seen = context.look();
            assert_eq!((seen.lost, seen.changes), (None, before as u32 + 1));
        }
        fake::QUIET_EVENTS.into_iter().for_each(fake::report);
        fake::report(abi::EVENT_CQ_ERR);
        let seen = context.look();
        let lost = Some("a completion queue has failed");
        assert_eq!((seen.lost, seen.changes), (lost, 9));
        assert_eq!(fake::unacknowledged(), 0);
    }

    #[test]
    fn open__of_an_unknown_device_says_which_there_are() {
        let library = Library::load().unwrap();
        let present = list_devices(library).unwrap();
        let error = DeviceContext::open(library, "no_such_device_9").err().unwrap();
        let wanted = "no_such_device_9".to_owned();
        match error {
            // The kernel has no RDMA support.
            VerbsError::NoDevice => assert!(present.is_empty()),
            error => assert_eq!(error, VerbsError::UnknownDevice { wanted, present }),
        }
        assert_eq!(fault::alive(), 0);
    }
}
