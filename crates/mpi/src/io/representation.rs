//! How numbers lie in a file (MPI 5.0, sections 14.5.1 to 14.5.3): as in memory, in the portable form, or as functions
//! of the program have it.
//!
//! **ELEMENTS.** As in `access`: the elements in memory are readable or writable as the access says. The stage has room
//! for as many as are converted at once, and lies apart from them.
#![allow(unsafe_code)]

use super::File;
use super::Refused;
use super::access::{Access, Target};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::datatype::{Basic, Datatype};
use crate::process::{Process, ProcessPart};
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::rc::Rc;

/// Bytes that are converted at a time, where an element has no more.
const STAGE_BYTES: u64 = 1 << 20;

/// `MPI_Datarep_conversion_function`: user's buffer, datatype, items, file's buffer, first item, extra state.
pub type Conversion =
    unsafe extern "C" fn(*mut c_void, usize, c_int, *mut c_void, i64, *mut c_void) -> c_int;
/// `MPI_Datarep_conversion_function_c`.
pub type LargeConversion =
    unsafe extern "C" fn(*mut c_void, usize, i64, *mut c_void, i64, *mut c_void) -> c_int;
/// `MPI_Datarep_extent_function`: datatype, its bytes in the file, extra state.
pub type ExtentFunction = unsafe extern "C" fn(usize, *mut isize, *mut c_void) -> c_int;

/// A function of the program that converts.
#[derive(Debug, Clone, Copy)]
pub enum Convert {
    /// With an `int` count.
    Small(Conversion),
    /// With an `MPI_Count`.
    Large(LargeConversion),
}

/// A representation that the program has registered.
#[derive(Debug)]
pub struct Registered {
    /// Its name.
    pub name: String,
    /// From the file to memory; none where bytes stay as they are.
    pub read: Option<Convert>,
    /// From memory to the file; the same.
    pub write: Option<Convert>,
    /// What a predefined datatype takes in the file.
    pub extent: ExtentFunction,
    /// What the functions are given.
    pub extra_state: *mut c_void,
}

/// The representation of a view.
#[derive(Debug, Clone)]
pub enum Representation {
    /// Bytes are those of memory: "native" or "internal".
    Native(&'static str),
    /// "external32".
    Portable,
    /// One of the program's.
    Registered(Rc<Registered>),
}

/// Representations that the program has registered.
static REGISTERED: ProcessPart<RefCell<Vec<Rc<Registered>>>> =
    ProcessPart::new(RefCell::new(Vec::new()));

/// Makes a representation known (`MPI_Register_datarep`).
///
/// # Errors
/// `MPI_ERR_DUP_DATAREP` for a name that is taken, `MPI_ERR_ARG` for none.
pub fn register(p: &Process, made: Registered) -> Result {
    if made.name.is_empty() {
        return Err(Error::new(MPI_ERR_ARG, "the name of the representation is empty"));
    }
    if Representation::find(p, &made.name).is_ok() {
        let text = format!("the data representation \"{}\" is registered already", made.name);
        return Err(Error::new(MPI_ERR_DUP_DATAREP, text));
    }
    REGISTERED.of(p).borrow_mut().push(Rc::new(made));
    Ok(())
}

impl Representation {
    /// The one of that name.
    ///
    /// # Errors
    /// `MPI_ERR_UNSUPPORTED_DATAREP`
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
                    "the data representation \"{name}\" is unknown: \"native\", \"internal\", \
                     \"external32\" and those of MPI_Register_datarep exist"
                ),
            )),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Representation::Native(name) => name,
            Representation::Portable => "external32",
            Representation::Registered(known) => &known.name,
        }
    }

    /// Whether bytes of the file are those of memory.
    pub fn is_native(&self) -> bool {
        matches!(self, Representation::Native(_))
    }

    /// Bytes that a predefined datatype takes in the file.
    fn bytes_of(&self, datatype: &Datatype, basic: Basic) -> Result<u64> {
        match self {
            Representation::Native(_) => Ok(datatype.layout().size()),
            Representation::Portable => Ok(datatype.external_size(1)? as u64),
            Representation::Registered(known) => known.bytes_of(basic),
        }
    }

    /// The datatype as it lies in the file: made by the same constructors, of what predefined types are there.
    ///
    /// # Errors
    /// `MPI_ERR_CONVERSION` where the program's function fails; `MPI_ERR_COUNT` for what does not fit.
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

    /// Bytes that one element takes in the file.
    ///
    /// # Errors
    /// As [`Representation::in_file`].
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
        bytes
            .ok_or_else(|| Error::new(MPI_ERR_COUNT, "an element does not fit 63 bits in the file"))
    }

    /// Bytes of the file that `count` elements stand for.
    ///
    /// # Errors
    /// As [`Representation::in_file`].
    pub(super) fn file_bytes(&self, datatype: &Datatype, count: u64) -> Result<u64> {
        let bytes = self.element_bytes(datatype)?.checked_mul(count);
        let bytes = bytes.filter(|bytes| *bytes <= i64::MAX as u64);
        bytes.ok_or_else(|| {
            let text = format!("{count} elements do not fit 63 bits in the file");
            Error::new(MPI_ERR_COUNT, text)
        })
    }

    /// Bytes of memory that `bytes` bytes of the file stand for: of whole elements, or whole numbers where all are of
    /// one type, where their sizes differ.
    ///
    /// # Errors
    /// As [`Representation::in_file`].
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

impl Registered {
    /// What the program's function says that a predefined datatype takes.
    fn bytes_of(&self, basic: Basic) -> Result<u64> {
        let mut extent = 0isize;
        // SAFETY: a function of that type, by the contract of whoever registered it; the variable lives.
        let code = unsafe { (self.extent)(basic.handle.into(), &mut extent, self.extra_state) };
        match (code, u64::try_from(extent)) {
            (MPI_SUCCESS, Ok(bytes)) if bytes <= i64::MAX as u64 => Ok(bytes),
            (MPI_SUCCESS, _) => {
                let text = format!(
                    "the extent function of \"{}\" gives {extent} bytes for {}",
                    self.name, basic.name
                );
                Err(Error::new(MPI_ERR_CONVERSION, text))
            }
            (code, _) => {
                let text = format!(
                    "the extent function of \"{}\" returns {code} for {}",
                    self.name, basic.name
                );
                Err(Error::new(MPI_ERR_CONVERSION, text))
            }
        }
    }
}

impl Convert {
    /// Converts `count` items from item `position` on.
    ///
    /// # Safety
    /// The user's buffer has the elements that hold the items, the file's buffer the items.
    unsafe fn call(
        self, known: &Registered, (user, datatype): (*mut u8, usize), file: *mut u8, position: u64,
        count: u64,
    ) -> Result {
        let (user, file, extra) = (user.cast(), file.cast(), known.extra_state);
        let small = c_int::try_from(count).map_err(|_| {
            let text = format!("{count} items of an element: use MPI_Register_datarep_c");
            Error::new(MPI_ERR_CONVERSION, text)
        });
        // SAFETY: a function of that type, by the contract of whoever registered it; the caller's for its arguments.
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
                let text = format!("the conversion function of \"{}\" returns {code}", known.name);
                Err(Error::new(MPI_ERR_CONVERSION, text))
            }
        }
    }
}

/// How an access is cut for a function of the program: whole pieces of a few numbers or elements.
struct Cut {
    /// Pieces in all.
    pieces: u64,
    /// Bytes of a piece in the file.
    bytes: u64,
    /// Numbers of a piece.
    items: u64,
}

impl Cut {
    /// The numbers of a datatype of one kind, and whole elements of others.
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

/// Moves the elements of an access through a conversion; how many bytes of the file.
///
/// # Safety
/// The elements are readable or, to be read into, writable.
pub(super) unsafe fn move_converted(
    to: &Target, representation: &Representation, access: &Access, datatype: &Datatype,
) -> std::result::Result<u64, Refused> {
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

/// Writes elements in the portable form, which is made a stage at a time.
///
/// # Safety
/// As [`move_converted`].
unsafe fn write_portable(
    to: &Target, access: &Access, datatype: &Datatype,
) -> std::result::Result<u64, Refused> {
    let count = access.count as u64;
    let total = Representation::Portable.file_bytes(datatype, count)?;
    let mut stage = Vec::with_capacity(STAGE_BYTES.min(total) as usize);
    let mut done = 0;
    let mut flush = |stage: &mut Vec<u8>| -> std::result::Result<(), Refused> {
        let bytes = stage.len();
        if bytes > 0 {
            // SAFETY: the stage has so many bytes.
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
        datatype.export::<Refused>(access.buf, count, &mut |chunk| {
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

/// Reads elements in the portable form, a stage at a time, up to the end of the file.
///
/// # Safety
/// As [`move_converted`].
unsafe fn read_portable(
    to: &Target, access: &Access, datatype: &Datatype,
) -> std::result::Result<u64, Refused> {
    let count = access.count as u64;
    let total = Representation::Portable.file_bytes(datatype, count)?;
    let mut stage = vec![0u8; STAGE_BYTES.min(total) as usize];
    // What has been read; of what is in the stage, where the next byte is and where they end.
    let (mut done, mut next, mut end) = (0u64, 0, 0);
    let mut take = |mut chunk: &mut [u8]| -> std::result::Result<usize, Refused> {
        let mut given = 0;
        while !chunk.is_empty() {
            if next == end {
                let bytes = (stage.len() as u64).min(total - done) as usize;
                let at = to.start + done;
                // SAFETY: the stage has so many bytes.
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

/// Moves the elements of an access through a function of the program; how many bytes of the file.
///
/// # Safety
/// As [`move_converted`].
unsafe fn move_by_function(
    to: &Target, known: &Registered, access: &Access, cut: &Cut,
) -> std::result::Result<u64, Refused> {
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
        // SAFETY: ELEMENTS; the stage has room for the pieces.
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
    /// Whether an access goes through a conversion.
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
