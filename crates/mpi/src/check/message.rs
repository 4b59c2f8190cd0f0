//! Messages between two ranks with `FASTPATH_CHECK`: each begins with a record that the receiver compares.
#![allow(unsafe_code)]

use super::record::{RECORD_BYTES, Record, describe_data};
use super::{Checks, name_call};
use crate::common::error::{Error, Result};
use crate::objects::datatype::Datatype;
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::layout::{Layout, LayoutError, StructPart};
use fastpath_protocol::request::RequestKind;
use fastpath_protocol::{Fault, RequestId, Worker};
use std::rc::Rc;
use std::sync::Arc;

pub(crate) struct CheckedMessage {
    /// Record of a send, or buffer for the record of a received message. The library accesses it by address, so it
    /// becomes a `Box` again only after the request has ended.
    record: *mut Record,
    pub(crate) call: &'static str,
    pub(crate) place: String,
    datatype: Rc<Datatype>,
}

impl Drop for CheckedMessage {
    fn drop(&mut self) {
        // SAFETY: the record was made by `Box` in `Checks::watch`, and the request that used its address has ended.
        drop(unsafe { Box::from_raw(self.record) });
    }
}

impl Checks {
    /// Adds a record before the data of a message. The caller must pass the result to [`Checks::keep`].
    pub(crate) fn watch(
        &self, call: &'static str, kind: RequestKind, (datatype, count): (&Rc<Datatype>, u64),
        buffer: &Buffer,
    ) -> Result<(CheckedMessage, Buffer)> {
        let place = self.place();
        let record = match kind {
            RequestKind::Send => Record::of_call(call, &place).with_data(datatype, count),
            _ => Record::NONE,
        };
        let watched = CheckedMessage {
            record: Box::into_raw(Box::new(record)),
            call,
            place,
            datatype: datatype.clone(),
        };
        let buffer = prepend(watched.record, buffer).map_err(|LayoutError::Overflow| {
            let text = "the message with its FASTPATH_CHECK record is too long: the number of \
                        bytes does not fit 64 bits";
            Error::new(crate::common::consts::MPI_ERR_COUNT, text)
        })?;
        Ok((watched, buffer))
    }

    pub(crate) fn keep(&self, id: RequestId, watched: CheckedMessage) {
        self.watched.borrow_mut().insert(id, watched);
    }

    /// Drops the record of a request that has ended and whose result will not be read.
    pub(crate) fn forget(&self, id: RequestId) {
        self.watched.borrow_mut().remove(&id);
    }

    /// Removes the record from a request that has ended, before its result is read. If the request is a receive,
    /// compares the record with the call. `worker` is the process's worker.
    pub(crate) fn settle(&self, worker: *mut Worker, id: RequestId) {
        let Some(watched) = self.watched.borrow_mut().remove(&id) else {
            return;
        };
        // SAFETY: the worker lives while MPI runs, and the request is in use until this completion returns.
        let request = unsafe { (*worker).requests.get_mut(id) };
        request.bytes -= RECORD_BYTES;
        if request.kind == RequestKind::Send || request.cancelled {
            return;
        }
        // SAFETY: the record was written before the request ended, and any bytes are a valid record.
        let record = unsafe { watched.record.read() };
        let is_whole = request.received >= RECORD_BYTES && record.is_valid();
        request.received = request.received.saturating_sub(RECORD_BYTES);
        match request.fault {
            Fault::Truncated => request.limit = request.limit.saturating_sub(RECORD_BYTES),
            Fault::None if !is_whole => {
                request.fault = Fault::Protocol;
                let (source, tag) = (request.source, request.received_tag);
                self.tell(&format!(
                    "the message from rank {source} with tag {tag} has no FASTPATH_CHECK record: \
                     set FASTPATH_CHECK=1 on all ranks"
                ));
            }
            Fault::None => {
                let (source, tag) = (request.source, request.received_tag);
                let own = name_call(watched.call, &watched.place);
                self.compare((&own, &watched.datatype), &record, (source, tag));
            }
            _ => {}
        }
    }

    /// Reports a receive whose datatype does not match the message.
    pub(crate) fn compare(
        &self, (call, datatype): (&str, &Datatype), sent: &Record, (source, tag): (i32, i32),
    ) {
        let signature = datatype.signature();
        let basic = signature.uniform();
        let is_packed =
            basic.is_some_and(|basic| basic.handle as usize == crate::common::consts::MPI_PACKED);
        let expected = signature.digest_first(sent.elements());
        if is_packed || expected.is_some_and(|expected| sent.agrees_with(expected)) {
            return;
        }
        let received = match (basic, datatype.name()) {
            (Some(_), _) => describe_data(sent.elements(), basic),
            (None, name) if !name.is_empty() => format!("elements of {name}"),
            (None, _) => "elements of other types".to_string(),
        };
        self.tell(&format!(
            "{call} receives {received}, but the message from rank {source} with tag {tag} holds \
             {}, sent by {}",
            sent.describe_data(),
            sent.title()
        ));
    }
}

/// Returns the buffer `data` with a record before it.
fn prepend(record: *mut Record, data: &Buffer) -> std::result::Result<Buffer, LayoutError> {
    let head = Layout::contiguous(RECORD_BYTES)?;
    let (layout, count) = match &data.layout {
        Some(layout) => (layout.clone(), data.count),
        None => (Arc::new(Layout::contiguous(data.bytes)?), 1),
    };
    let parts = [
        StructPart { layout: &head, count: 1, displacement: 0 },
        StructPart {
            layout: &layout,
            count,
            displacement: (data.ptr as i64).wrapping_sub(record as i64),
        },
    ];
    Ok(Buffer {
        ptr: record.cast(),
        bytes: data.bytes + RECORD_BYTES,
        layout: Some(Arc::new(Layout::structure(parts)?)),
        count: 1,
    })
}
