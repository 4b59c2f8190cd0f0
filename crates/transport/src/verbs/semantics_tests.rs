//! Semantics of a queue pair's operations, on the fake adapter or the device of `FASTPATH_TEST_DEVICE`: invalidated
//! keys, fenced reads, granted limits that cannot be read.
#![allow(unsafe_code, non_snake_case)]

use super::echo::QueueEnd;
use super::post::{SendFlags, failure};
use super::*;
use std::time::{Duration, Instant};

/// Time after which a wait counts as hung.
const WATCHDOG: Duration = Duration::from_secs(60);

const REPORTED: SendFlags =
    SendFlags { signaled: true, fenced: false, solicited: false, inline: InlineChoice::Auto };

fn connect(context: &std::sync::Arc<DeviceContext>) -> (EchoPort, Echo) {
    let port = EchoPort::new(context, None).unwrap();
    let echo = port.connect(64, 256, WATCHDOG).unwrap();
    (port, echo)
}

fn post(
    end: &QueueEnd, operation: &SendOperation<'_>, segments: &[Sge], flags: SendFlags,
) -> PostedSend {
    // SAFETY: the segments' memory outlives the operation, which is awaited.
    unsafe { end.pair.post_send(7, operation, segments, flags) }.unwrap()
}

fn wait(queue: &CompletionQueue) -> Result<Wc, Failure> {
    let start = Instant::now();
    let mut batch = [Wc::default()];
    while queue.poll(&mut batch).unwrap() == 0 {
        assert!(start.elapsed() < WATCHDOG);
    }
    match failure(&batch[0]) {
        None => Ok(batch[0]),
        Some(why) => Err(why),
    }
}

/// Memory of the second end, and a window for the first end to a part of it.
struct WindowedMemory {
    memory: Buffer,
    window: MemoryWindow,
}

impl WindowedMemory {
    fn new(port: &EchoPort) -> WindowedMemory {
        WindowedMemory {
            memory: Buffer::new(&port.domain, 4096, Access::Windowed).unwrap(),
            window: MemoryWindow::new(&port.domain).unwrap(),
        }
    }

    fn try_bind(&self, end: &QueueEnd, offset: usize, writable: bool) -> Result<Wc, Failure> {
        let at = self.memory.address().wrapping_add(offset);
        let binding = self.window.bind(self.memory.region(), at, 64, writable);
        let _ = post(end, &binding, &[], REPORTED);
        wait(&end.send_cq)
    }

    fn bind(&self, end: &QueueEnd, offset: usize, writable: bool) {
        self.try_bind(end, offset, writable).unwrap();
    }

    fn write(&self, end: &QueueEnd, offset: usize, value: u64, rkey: u32) -> Result<Wc, Failure> {
        let operation =
            SendOperation::Write { address: self.memory.address() as u64 + offset as u64, rkey };
        let segment = [Sge::over((&raw const value).cast(), 8, 0)];
        assert!(post(end, &operation, &segment, REPORTED).inline);
        wait(&end.send_cq)
    }

    fn word(&self, offset: usize) -> u64 {
        let at = self.memory.address().wrapping_add(offset).cast::<u64>();
        // SAFETY: the word is within the memory and aligned. The read is volatile, because the device writes there.
        unsafe { at.read_volatile() }
    }
}

/// Sends an inline message of 8 bytes that invalidates a key of the far end.
fn end_key([near, far]: &[QueueEnd; 2], key: u32, value: u64) -> Wc {
    let segment = [Sge::over((&raw const value).cast(), 8, 0)];
    let posted = post(near, &SendOperation::SendInvalidate(key), &segment, REPORTED);
    assert!(posted.inline);
    wait(&near.send_cq).unwrap();
    wait(&far.recv_cq).unwrap()
}

#[test]
fn send_with_invalidate__arrives_inline_and_ends_the_key() {
    let (context, real) = test_device();
    let (port, echo) = connect(&context);
    let [near, far] = &echo.ends;
    let shown = WindowedMemory::new(&port);
    shown.bind(far, 1024, true);
    let key = shown.window.rkey();
    shown.write(near, 1024, 41, key).unwrap();
    assert_eq!(shown.word(1024), 41);
    let arrived = end_key(&echo.ends, key, 42);
    assert_eq!(arrived.byte_len, 8);
    // SAFETY: the 8 bytes have arrived, and are aligned.
    assert_eq!(unsafe { far.incoming().cast::<u64>().read_volatile() }, 42);
    // Soft-RoCE does not report which key was invalidated.
    if !real {
        let with = arrived.wc_flags & abi::WC_WITH_INV;
        assert_eq!((with, arrived.imm_data), (abi::WC_WITH_INV, key));
    }
    let refused = shown.write(near, 1024, 43, key).unwrap_err();
    assert_eq!(refused, Failure::RemoteAccess);
    assert_eq!(shown.word(1024), 41, "written by a key that had ended");
}

#[test]
fn window__whose_key_has_ended_is_bound_anew_by_another() {
    let (context, _) = test_device();
    let (port, echo) = connect(&context);
    let [near, far] = &echo.ends;
    let shown = WindowedMemory::new(&port);
    shown.bind(far, 0, true);
    let old = shown.window.rkey();
    end_key(&echo.ends, old, 1);
    shown.bind(far, 64, true);
    let new = shown.window.rkey();
    assert_ne!(old, new);
    shown.write(near, 64, 5, new).unwrap();
    assert_eq!(shown.word(64), 5);
    let refused = shown.write(near, 64, 6, old).unwrap_err();
    assert_eq!((refused, shown.word(64)), (Failure::RemoteAccess, 5));
}

#[test]
fn window__that_is_bound_cannot_be_bound_again() {
    let (context, _) = test_device();
    let (port, echo) = connect(&context);
    let shown = WindowedMemory::new(&port);
    shown.bind(&echo.ends[1], 0, true);
    let refused = shown.try_bind(&echo.ends[1], 64, true).unwrap_err();
    assert_eq!(refused, Failure::Other(abi::WC_MW_BIND_ERR));
}

#[test]
fn window__that_may_be_read_alone_is_not_written() {
    let (context, _) = test_device();
    let (port, echo) = connect(&context);
    let [near, far] = &echo.ends;
    let shown = WindowedMemory::new(&port);
    shown.bind(far, 0, false);
    let refused = shown.write(near, 0, 1, shown.window.rkey()).unwrap_err();
    assert_eq!((refused, shown.word(0)), (Failure::RemoteAccess, 0));
}

/// Only on the fake adapter: Soft-RoCE (Linux 6.1) checks accesses against the bounds of the region, not the window.
#[test]
fn window__leads_within_its_bounds() {
    fake::set_conditions(fake::Conditions::default());
    let (port, echo) = connect(&fake::open());
    let [near, far] = &echo.ends;
    let shown = WindowedMemory::new(&port);
    shown.bind(far, 0, true);
    shown.write(near, 56, 7, shown.window.rkey()).unwrap();
    let refused = shown.write(near, 60, 1, shown.window.rkey()).unwrap_err();
    assert_eq!((refused, shown.word(56)), (Failure::RemoteAccess, 7));
}

#[test]
fn window__of_a_device_without_is_an_error_and_nothing_is_left() {
    let context = fake::open();
    fake::set_conditions(fake::Conditions { windows: false, ..fake::Conditions::default() });
    let domain = ProtectionDomain::new(&context).unwrap();
    let base = fault::alive();
    let error = MemoryWindow::new(&domain).err().unwrap();
    assert_eq!((error.errno(), fault::alive()), (libc::EOPNOTSUPP, base));
    fake::set_conditions(fake::Conditions::default());
    drop(MemoryWindow::new(&domain).unwrap());
    assert_eq!(fault::alive(), base);
}

/// Reads 8 bytes of the far end into a buffer, and writes the buffer to another place of the far end. Returns the
/// arrived bytes.
fn read_and_pass_on(context: &std::sync::Arc<DeviceContext>, fenced: bool) -> u64 {
    let (_port, echo) = connect(context);
    let [near, far] = &echo.ends;
    let (source, target) = (far.incoming(), far.incoming().wrapping_add(64));
    // SAFETY: both words are within the far end's memory and aligned; nothing is outstanding.
    unsafe {
        source.cast::<u64>().write_volatile(77);
        target.cast::<u64>().write_volatile(0);
    }
    let rkey = far.buffer.region().rkey();
    let segment = [Sge::over(near.buffer.address(), 8, near.buffer.region().lkey())];
    let read = SendOperation::Read { address: source as u64, rkey };
    let write = SendOperation::Write { address: target as u64, rkey };
    let _ = post(near, &read, &segment, SendFlags::default());
    // Use DMA, which reads the buffer when the write is executed, not when it is posted.
    let flags = SendFlags { fenced, inline: InlineChoice::Forbid, ..REPORTED };
    let _ = post(near, &write, &segment, flags);
    wait(&near.send_cq).unwrap();
    // SAFETY: the word is within the far end's memory and aligned; the write has completed.
    unsafe { target.cast::<u64>().read_volatile() }
}

#[test]
fn fence__waits_for_a_read_whose_answer_is_late() {
    let context = fake::open();
    fake::set_conditions(fake::Conditions { read_delay: 5, ..fake::Conditions::default() });
    assert_eq!(read_and_pass_on(&context, false), 0, "it went past the read");
    assert_eq!(read_and_pass_on(&context, true), 77);
    fake::set_conditions(fake::Conditions::default());
    // A real device does not delay answers on purpose, so only the fenced write has a certain result there.
    let (context, _) = test_device();
    for _ in 0..20 {
        assert_eq!(read_and_pass_on(&context, true), 77);
    }
}

#[test]
fn grant__that_cannot_be_read_back_ends_the_pair_and_fails() {
    let (context, _) = test_device();
    let port = EchoPort::new(&context, None).unwrap();
    let base = fault::alive();
    fault::arm(VerbsCall::QueryQp, 0, libc::EIO);
    let error = port.make_pair(64, 16).err().unwrap();
    assert_eq!((error.errno(), fault::alive()), (libc::EIO, base));
    assert!(error.to_string().contains("granted"), "{error}");
    let pair = port.make_pair(64, 16).unwrap();
    assert!(pair.granted_inline() >= 64);
    assert_eq!(fault::alive(), base + 1);
}

/// Three pieces of the near end's memory, one of them empty, with `bytes` bytes in all.
fn pieces(near: &QueueEnd, bytes: usize) -> [Sge; 3] {
    let first = bytes / 3;
    let piece = |at: usize, len| {
        let address = near.buffer.address().wrapping_add(at);
        Sge::over(address, len, near.buffer.region().lkey())
    };
    [piece(0, first), piece(first, 0), piece(first, bytes - first)]
}

/// Sends `bytes` bytes in three pieces, and overwrites them when permitted. Returns whether the pieces went inline.
fn send_pieces([near, far]: &[QueueEnd; 2], operation: &SendOperation<'_>, bytes: usize) -> bool {
    let fill = |at: *mut u8, value: u8| {
        // SAFETY: half of the buffer has room for `bytes + 1` bytes, and nothing is outstanding there.
        unsafe { std::ptr::write_bytes(at, value, bytes + 1) }
    };
    fill(near.buffer.address(), 0x5a);
    fill(far.incoming(), 0);
    let posted = post(near, operation, &pieces(near, bytes), REPORTED);
    if posted.inline {
        fill(near.buffer.address(), 0xee);
    }
    wait(&near.send_cq).unwrap();
    if !matches!(operation, SendOperation::Write { .. }) {
        assert_eq!(wait(&far.recv_cq).unwrap().byte_len, bytes as u32);
        far.post_receive().unwrap();
    }
    // SAFETY: the bytes are within the buffer; the send has completed.
    let came = (0..=bytes).map(|at| unsafe { far.incoming().add(at).read_volatile() });
    let expected = (0..=bytes).map(|at| if at < bytes { 0x5a } else { 0 });
    assert!(came.eq(expected), "{bytes} bytes, inline: {}", posted.inline);
    posted.inline
}

#[test]
fn inline__in_several_pieces_up_to_what_was_granted_may_be_overwritten_once_posted() {
    let (context, _) = test_device();
    let mut port = EchoPort::new(&context, None).unwrap();
    port.segments = 3;
    let echo = port.connect(64, 1024, WATCHDOG).unwrap();
    let [near, far] = &echo.ends;
    let granted = near.pair.granted_inline() as usize;
    assert!((64..1000).contains(&granted), "{granted}");
    let write =
        SendOperation::Write { address: far.incoming() as u64, rkey: far.buffer.region().rkey() };
    for operation in [SendOperation::Send, SendOperation::SendImmediate(3), write] {
        for bytes in [0, 1, 64, granted, granted + 1, 1000] {
            let inline = send_pieces(&echo.ends, &operation, bytes);
            assert_eq!(inline, bytes <= granted, "{bytes} of {granted}");
        }
    }
}

#[test]
fn message__longer_than_the_peers_buffer_is_refused_and_both_sides_know() {
    let (context, _) = test_device();
    let (_port, echo) = connect(&context);
    let [near, far] = &echo.ends;
    let most = near.room as usize;
    let region = near.buffer.region();
    let segment = [Sge::over(near.buffer.address(), most + 8, region.lkey())];
    let _ = post(near, &SendOperation::Send, &segment, REPORTED);
    let refused = wait(&near.send_cq).unwrap_err();
    assert_eq!(refused, Failure::RemoteRefused);
    // Expected is the error of the standard, or the error that Soft-RoCE reports instead.
    let told = wait(&far.recv_cq).unwrap_err();
    assert!(matches!(told, Failure::Local | Failure::RemoteRefused), "{told:?}");
    // SAFETY: the byte is within the memory, right behind the receive buffer.
    let beyond = unsafe { far.incoming().add(most).read_volatile() };
    assert_eq!(beyond, 0, "written beyond the buffer");
}

#[test]
fn address__without_owner__fails_to_connect_or_send() {
    let (context, _) = test_device();
    let port = EchoPort::new(&context, None).unwrap();
    let mut bytes = port.port.address().encode();
    // Change each address to another host of the same network.
    bytes[3..].chunks_mut(17).for_each(|gid| gid[16] ^= 0x55);
    let address = PortAddress::decode(&bytes).unwrap();
    match port.connect_by(&address, 64, 64, WATCHDOG) {
        Err(error) => assert!(error.to_string().contains(context.name()), "{error}"),
        Ok(mut echo) => {
            let silent = echo.exchange(echo::Verb::Send, 8, InlineChoice::Auto, 1);
            let error = silent.unwrap_err();
            assert_eq!(error, EchoError::Failed(Failure::NoAnswer));
            assert!(error.to_string().contains("no answer"), "{error}");
        }
    }
}
