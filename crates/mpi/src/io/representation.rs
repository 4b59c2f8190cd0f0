//! Data representations of files (MPI 5.0, sections 14.5.1 to 14.5.3): native, external32, and those of conversion
//! functions of the program.
//!
//! **ELEMENTS.** The elements in memory are readable or writable as in `access`. The stage has space for the elements
//! of one conversion step, and does not overlap them.
#![allow(unsafe_code)]

use super::AccessFailure;
use super::File;
use super::access::{Access, AccessTarget};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::datatype::{Basic, Datatype};
use crate::process::{Process, ProcessPart};
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::rc::Rc;

/// Number of bytes that are converted at a time. An element that is larger is converted whole.
const STAGE_BYTES: u64 = 1 << 20;

/// `MPI_Datarep_conversion_function`: user buffer, datatype, items, file buffer, first item, extra state.
pub type Conversion =
    unsafe extern "C" fn(*mut c_void, usize, c_int, *mut c_void, i64, *mut c_void) -> c_int;
/// `MPI_Datarep_conversion_function_c`: see [`Conversion`], with `MPI_Count` items.
pub type LargeConversion =
    unsafe extern "C" fn(*mut c_void, usize, i64, *mut c_void, i64, *mut c_void) -> c_int;
/// `MPI_Datarep_extent_function`: datatype, its extent in the file in bytes, extra state.
pub type ExtentFunction = unsafe extern "C" fn(usize, *mut isize, *mut c_void) -> c_int;

/// A conversion function of the program.
#[derive(Debug, Clone, Copy)]
pub enum Convert {
    /// Function with an `int` count.
    Small(Conversion),
    /// Function with an `MPI_Count`.
    Large(LargeConversion),
}

/// A data representation registered by the program.
#[derive(Debug)]
pub struct DataRepresentation {
    /// Name of the representation.
    pub name: String,
    /// Conversion from the file to memory; `None` if bytes are not converted.
    pub read: Option<Convert>,
    /// Conversion from memory to the file; `None` if bytes are not converted.
    pub write: Option<Convert>,
    /// Function that returns the extent of a predefined datatype in the file.
    pub extent: ExtentFunction,
    /// Extra state passed to the functions.
    pub extra_state: *mut c_void,
}

/// Data representation of a view.
#[derive(Debug, Clone)]
pub enum Representation {
    /// The bytes of memory, without conversion: "native" or "internal".
    Native(&'static str),
    /// Portable form: "external32".
    Portable,
    /// A representation registered by the program.
    Registered(Rc<DataRepresentation>),
}

static REGISTERED: ProcessPart<RefCell<Vec<Rc<DataRepresentation>>>> =
    ProcessPart::new(RefCell::new(Vec::new()));

/// Registers a representation (`MPI_Register_datarep`). Errors: `MPI_ERR_DUP_DATAREP` for a name in use, `MPI_ERR_ARG`
/// for an empty name.
pub fn register(p: &Process, made: DataRepresentation) -> Result {
    if made.name.is_empty() {
        return Err(Error::new(
            MPI_ERR_ARG,
            "the name of the representation is empty: pass a name",
        ));
    }
    if Representation::find(p, &made.name).is_ok() {
        let text = format!("the data representation \"{}\" is registered already", made.name);
        return Err(Error::new(MPI_ERR_DUP_DATAREP, text));
    }
    REGISTERED.of(p).borrow_mut().push(Rc::new(made));
    Ok(())
}

impl Representation {
    /// Finds a representation by name. Errors: `MPI_ERR_UNSUPPORTED_DATAREP`.
    pub(super) fn find(p: &Process, name: &str) -> Result<Representation> {
        match name {
            "native" => return Ok(Representation::Native("native")),
            "internal" => return Ok(Representation::Native("internal")),
            "external32" => return Ok(Representation::Portable),
            _ => {}
        }
        let known = REGISTERED.of(p).borrow();
        match known.iter().find(|known| known.name == name) {
            Some(known) => Ok(Representation::Registered(known.clone())),
            None => Err(Error::new(
                MPI_ERR_UNSUPPORTED_DATAREP,
                format!(
                    "the data representation \"{name}\" is unknown: pass \"native\", \"internal\", \
                     \"external32\" or a name registered by MPI_Register_datarep"
                ),
            )),
        }
    }

    /// Returns the name of the representation.
    pub fn name(&self) -> &str {
        match self {
            Representation::Native(name) => name,
            Representation::Portable => "external32",
            Representation::Registered(known) => &known.name,
        }
    }

    /// Returns whether the file holds the bytes of memory, without conversion.
    pub fn is_native(&self) -> bool {
        matches!(self, Representation::Native(_))
    }

    fn bytes_of(&self, datatype: &Datatype, basic: Basic) -> Result<u64> {
        match self {
            Representation::Native(_) => Ok(datatype.layout().size()),
            Representation::Portable => Ok(datatype.external_size(1)? as u64),
            Representation::Registered(known) => known.bytes_of(basic),
        }
    }

    /// Returns the datatype of the file form: the same constructors, applied to the file forms of the predefined
    /// datatypes. Errors: `MPI_ERR_CONVERSION` if a function of the program fails, `MPI_ERR_COUNT` if the size
    /// overflows.
    pub(super) fn in_file(&self, p: &Process, datatype: &Rc<Datatype>) -> Result<Rc<Datatype>> {
        if self.is_native() {
            return Ok(datatype.clone());
        }
        let byte = p.datatype(MPI_BYTE)?;
        datatype.rebuild(&mut |named, basic| {
            let bytes = self.bytes_of(named, basic)?;
            let form = crate::objects::datatype::Form::Large;
            Ok(Rc::new(Datatype::contiguous(bytes as i64, &byte, form)?))
        })
    }

    /// Returns the bytes of one element in the file.
    pub(super) fn element_bytes(&self, datatype: &Datatype) -> Result<u64> {
        let Representation::Registered(known) = self else {
            return match self {
                Representation::Portable => Ok(datatype.external_size(1)? as u64),
                _ => Ok(datatype.layout().size()),
            };
        };
        let mut sizes: Vec<(Basic, u64)> = Vec::new();
        for basic in datatype.signature().basics() {
            sizes.push((basic, known.bytes_of(basic)?));
        }
        let size = |basic| {
            let found = sizes.iter().find(|(known, _)| *known == basic);
            found.map_or(0, |(_, bytes)| *bytes)
        };
        let bytes = datatype.signature().measure(&size);
        let bytes = bytes.filter(|bytes| *bytes <= i64::MAX as u64);
        bytes.ok_or_else(|| {
            Error::new(MPI_ERR_COUNT, "an element has more than 2^63 - 1 bytes in the file")
        })
    }

    /// Returns the bytes of `count` elements in the file.
    pub(super) fn file_bytes(&self, datatype: &Datatype, count: u64) -> Result<u64> {
        let bytes = self.element_bytes(datatype)?.checked_mul(count);
        let bytes = bytes.filter(|bytes| *bytes <= i64::MAX as u64);
        bytes.ok_or_else(|| {
            let text = format!("{count} elements have more than 2^63 - 1 bytes in the file");
            Error::new(MPI_ERR_COUNT, text)
        })
    }

    /// Returns the bytes of memory for `bytes` bytes of the file. If the element sizes differ, only whole elements
    /// count.
    pub(super) fn memory_bytes(&self, datatype: &Datatype, bytes: u64) -> Result<u64> {
        if self.is_native() {
            return Ok(bytes);
        }
        let (one, size) = (self.element_bytes(datatype)?, datatype.layout().size());
        Ok(match one {
            0 => 0,
            one if one == size => bytes,
            one => bytes / one * size,
        })
    }
}

impl DataRepresentation {
    /// Returns the bytes of a predefined datatype in the file, as the program's extent function gives them.
    fn bytes_of(&self, basic: Basic) -> Result<u64> {
        let mut extent = 0isize;
        // SAFETY: the program registered a function of this type, and `extent` is writable.
        let code = unsafe { (self.extent)(basic.handle.into(), &mut extent, self.extra_state) };
        match (code, u64::try_from(extent)) {
            (MPI_SUCCESS, Ok(bytes)) if bytes <= i64::MAX as u64 => Ok(bytes),
            (MPI_SUCCESS, _) => {
                let text = format!(
                    "the extent function of \"{}\" returns an invalid extent of {extent} bytes for \
                     {}",
                    self.name, basic.name
                );
                Err(Error::new(MPI_ERR_CONVERSION, text))
            }
            (code, _) => {
                let text = format!(
                    "the extent function of \"{}\" returns error code {code} for {}",
                    self.name, basic.name
                );
                Err(Error::new(MPI_ERR_CONVERSION, text))
            }
        }
    }
}

impl Convert {
    /// Calls the function for `count` items from item `position` on.
    ///
    /// # Safety
    /// The user buffer holds the elements of the items, and the file buffer holds the items.
    unsafe fn call(
        self, known: &DataRepresentation, (user, datatype): (*mut u8, usize), file: *mut u8,
        position: u64, count: u64,
    ) -> Result {
        let (user, file, extra) = (user.cast(), file.cast(), known.extra_state);
        let small = c_int::try_from(count).map_err(|_| {
            let text = format!(
                "an element has {count} items, more than an int can count: use \
                 MPI_Register_datarep_c"
            );
            Error::new(MPI_ERR_CONVERSION, text)
        });
        // SAFETY: the program registered a function of this type, and the caller guarantees its arguments.
        let code = unsafe {
            match self {
                Convert::Small(function) => {
                    function(user, datatype, small?, file, position as i64, extra)
                }
                Convert::Large(function) => {
                    function(user, datatype, count as i64, file, position as i64, extra)
                }
            }
        };
        match code {
            MPI_SUCCESS => Ok(()),
            code => {
                let text = format!(
                    "the conversion function of \"{}\" returns error code {code}",
                    known.name
                );
                Err(Error::new(MPI_ERR_CONVERSION, text))
            }
        }
    }
}

/// Division of an access into pieces for a conversion function. A piece consists of whole items or whole elements.
struct Cut {
    pieces: u64,
    /// Bytes of a piece in the file.
    bytes: u64,
    items: u64,
}

impl Cut {
    /// Divides into items if the datatype has only one kind of number, otherwise into whole elements.
    fn of(representation: &Representation, datatype: &Datatype, count: u64) -> Result<Cut> {
        let one = representation.element_bytes(datatype)?;
        let items = datatype.signature().elements();
        let is_uniform = datatype.signature().uniform().is_some_and(|basic| basic.elements() == 1);
        Ok(match is_uniform && items > 0 {
            true => Cut { pieces: items.saturating_mul(count), bytes: one / items, items: 1 },
            false => Cut { pieces: count, bytes: one, items },
        })
    }
}

/// Moves the elements of an access through a conversion, and returns their bytes in the file.
///
/// # Safety
/// See ELEMENTS.
pub(super) unsafe fn move_converted(
    to: &AccessTarget, representation: &Representation, access: &Access, datatype: &Datatype,
) -> std::result::Result<u64, AccessFailure> {
    // SAFETY: ELEMENTS.
    unsafe {
        match representation {
            Representation::Registered(known) => {
                let cut = Cut::of(representation, datatype, access.count as u64)?;
                move_by_function(to, known, access, &cut)
            }
            _ if access.writes => write_portable(to, access, datatype),
            _ => read_portable(to, access, datatype),
        }
    }
}

/// Writes elements in the portable form, one stage at a time.
///
/// # Safety
/// See ELEMENTS.
unsafe fn write_portable(
    to: &AccessTarget, access: &Access, datatype: &Datatype,
) -> std::result::Result<u64, AccessFailure> {
    let count = access.count as u64;
    let total = Representation::Portable.file_bytes(datatype, count)?;
    let mut stage = Vec::with_capacity(STAGE_BYTES.min(total) as usize);
    let mut done = 0;
    let mut flush = |stage: &mut Vec<u8>| -> std::result::Result<(), AccessFailure> {
        let bytes = stage.len();
        if bytes > 0 {
            // SAFETY: the stage has `bytes` bytes.
            unsafe {
                to.file.write_view(&to.view, to.start + done, stage.as_ptr(), bytes, to.sieve)?;
            }
        }
        stage.clear();
        done += bytes as u64;
        Ok(())
    };
    // SAFETY: ELEMENTS.
    unsafe {
        datatype.export::<AccessFailure>(access.buf, count, &mut |chunk| {
            if stage.len() + chunk.len() > STAGE_BYTES as usize {
                flush(&mut stage)?;
            }
            stage.extend_from_slice(chunk);
            Ok(())
        })?;
    }
    flush(&mut stage)?;
    Ok(done)
}

/// Reads elements in the portable form, one stage at a time, up to the end of the file.
///
/// # Safety
/// See ELEMENTS.
unsafe fn read_portable(
    to: &AccessTarget, access: &Access, datatype: &Datatype,
) -> std::result::Result<u64, AccessFailure> {
    let count = access.count as u64;
    let total = Representation::Portable.file_bytes(datatype, count)?;
    let mut stage = vec![0u8; STAGE_BYTES.min(total) as usize];
    // `done` counts all bytes read. `next..end` is the range of the stage that is not used yet.
    let (mut done, mut next, mut end) = (0u64, 0, 0);
    let mut take = |mut chunk: &mut [u8]| -> std::result::Result<usize, AccessFailure> {
        let mut given = 0;
        while !chunk.is_empty() {
            if next == end {
                let bytes = (stage.len() as u64).min(total - done) as usize;
                let at = to.start + done;
                // SAFETY: the stage has at least `bytes` bytes.
                let read = unsafe { to.file.read_view(&to.view, at, stage.as_mut_ptr(), bytes)? };
                (next, end) = (0, read);
                done += read as u64;
                if read == 0 {
                    break;
                }
            }
            let now = chunk.len().min(end - next);
            let (filled, rest) = chunk.split_at_mut(now);
            filled.copy_from_slice(&stage[next..next + now]);
            (chunk, next, given) = (rest, next + now, given + now);
        }
        Ok(given)
    };
    // SAFETY: ELEMENTS.
    unsafe { datatype.import(access.buf, count, &mut take)? };
    Ok(done)
}

/// Moves the elements of an access through a conversion function of the program, and returns their bytes in the file.
///
/// # Safety
/// See ELEMENTS.
unsafe fn move_by_function(
    to: &AccessTarget, known: &DataRepresentation, access: &Access, cut: &Cut,
) -> std::result::Result<u64, AccessFailure> {
    let function = if access.writes { known.write } else { known.read };
    let function = function
        .ok_or_else(|| Error::new(MPI_ERR_INTERN, "bytes that stay as they are are converted"))?;
    if cut.bytes == 0 {
        return Ok(0);
    }
    let most = (STAGE_BYTES / cut.bytes).clamp(1, cut.pieces.max(1));
    let mut stage = vec![0u8; (most * cut.bytes) as usize];
    let (mut piece, mut done) = (0, 0);
    while piece < cut.pieces {
        let now = most.min(cut.pieces - piece);
        let bytes = (now * cut.bytes) as usize;
        // SAFETY: ELEMENTS. The stage holds `most` pieces, and `now` is at most `most`.
        unsafe {
            let convert = |count: u64, stage: &mut [u8]| match count {
                0 => Ok(()),
                _ => {
                    let user = (access.buf, access.datatype);
                    let (position, items) = (piece * cut.items, count * cut.items);
                    function.call(known, user, stage.as_mut_ptr(), position, items)
                }
            };
            if access.writes {
                convert(now, &mut stage)?;
                to.file.write_view(&to.view, to.start + done, stage.as_ptr(), bytes, to.sieve)?;
                done += bytes as u64;
            } else {
                let read =
                    to.file.read_view(&to.view, to.start + done, stage.as_mut_ptr(), bytes)?;
                convert(read as u64 / cut.bytes, &mut stage)?;
                done += read as u64;
                if read < bytes {
                    break;
                }
            }
        }
        piece += now;
    }
    Ok(done)
}

impl File {
    pub(super) fn converts(&self, writes: bool) -> bool {
        match &self.shown().representation {
            Representation::Native(_) => false,
            Representation::Portable => true,
            Representation::Registered(known) => match writes {
                true => known.write.is_some(),
                false => known.read.is_some(),
            },
        }
    }
}
