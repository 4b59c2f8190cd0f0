//! Messages between two ranks: each begins with a record, and a receive compares.
#![allow(unsafe_code)]

use super::record::{RECORD_BYTES, Record, describe_data};
use super::{Checks, name_call};
use crate::common::error::{Error, Result};
use crate::objects::datatype::Datatype;
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::layout::{Layout, LayoutError, Part};
use fastpath_protocol::request::RequestKind;
use fastpath_protocol::{Fault, RequestId, Worker};
use std::rc::Rc;
use std::sync::Arc;

/// A send or receive of the program that is under way.
pub(crate) struct Watched {
    /// A send's own record, or where that of the message comes. The library writes and reads it by its address, so that
    /// it is given back to `Box` only when the request has ended.
    record: *mut Record,
    /// The call.
    pub(crate) call: &'static str,
    /// Where the program has made it.
    pub(crate) place: String,
    datatype: Rc<Datatype>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: made by `Box` in `Checks::watch`, and the request that knew its address has ended.
        drop(unsafe { Box::from_raw(self.record) });
    }
}

impl Checks {
    /// Puts room for a record before the data of a send or receive, of a send with its record. What it returns must be
    /// kept ([`Checks::keep`]) as long as the request lives.
    pub(crate) fn watch(
        &self, call: &'static str, kind: RequestKind, (datatype, count): (&Rc<Datatype>, u64),
        buffer: &Buffer,
    ) -> Result<(Watched, Buffer)> {
        let place = self.place();
        let record = match kind {
            RequestKind::Send => Record::of_call(call, &place).with_data(datatype, count),
            _ => Record::NONE,
        };
        let watched = Watched {
            record: Box::into_raw(Box::new(record)),
            call,
            place,
            datatype: datatype.clone(),
        };
        let buffer = prepend(watched.record, buffer).map_err(|LayoutError::Overflow| {
            let text = "the message and the record of FASTPATH_CHECK do not fit 64 bits";
            Error::new(crate::common::consts::MPI_ERR_COUNT, text)
        })?;
        Ok((watched, buffer))
    }

    /// Keeps what [`Checks::watch`] has made until the request has ended.
    pub(crate) fn keep(&self, id: RequestId, watched: Watched) {
        self.watched.borrow_mut().insert(id, watched);
    }

    /// Gives up what was kept for a request that has ended and whose result is not read.
    pub(crate) fn forget(&self, id: RequestId) {
        self.watched.borrow_mut().remove(&id);
    }

    /// Takes the record off a request that has ended, before its result is read, and compares it with a receive's
    /// datatype. The worker is the first one.
    pub(crate) fn settle(&self, worker: *mut Worker, id: RequestId) {
        let Some(watched) = self.watched.borrow_mut().remove(&id) else {
            return;
        };
        // SAFETY: the worker lives while MPI runs, and the request is in use: it is just being completed.
        let request = unsafe { (*worker).requests.get_mut(id) };
        request.bytes -= RECORD_BYTES;
        if request.kind == RequestKind::Send || request.cancelled {
            return;
        }
        // SAFETY: written before the request ended; any bytes are a record.
        let record = unsafe { watched.record.read() };
        let is_whole = request.received >= RECORD_BYTES && record.is_valid();
        request.received = request.received.saturating_sub(RECORD_BYTES);
        match request.fault {
            Fault::Truncated => request.limit = request.limit.saturating_sub(RECORD_BYTES),
            Fault::None if !is_whole => {
                request.fault = Fault::Protocol;
                let (source, tag) = (request.source, request.received_tag);
                self.tell(&format!(
                    "the message from rank {source} with tag {tag} comes without a record: \
                     FASTPATH_CHECK must be 1 on all ranks"
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

    /// Reports a receive, with its call, whose datatype is not that of the message.
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
            (None, _) => "a datatype with other elements".to_string(),
        };
        self.tell(&format!(
            "{call} receives {received}, but the message from rank {source} with tag {tag} holds \
             {}, sent by {}",
            sent.describe_data(),
            sent.title()
        ));
    }
}

/// The buffer with a record before its data.
fn prepend(record: *mut Record, data: &Buffer) -> std::result::Result<Buffer, LayoutError> {
    let head = Layout::contiguous(RECORD_BYTES)?;
    let (layout, count) = match &data.layout {
        Some(layout) => (layout.clone(), data.count),
        None => (Arc::new(Layout::contiguous(data.bytes)?), 1),
    };
    let parts = [
        Part { layout: &head, count: 1, displacement: 0 },
        Part {
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
