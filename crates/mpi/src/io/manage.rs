//! Size, view, position, hints and atomicity (MPI 5.0, sections 14.2 to 14.6).

use super::failure::{TOLD, agree_and_tell};
use super::hints::Hints;
use super::representation::Representation;
use super::{AccessFailure, File, FileView, helper, report};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::datatype::{Basic, BasicKind, Datatype, Signature};
use crate::objects::info::Info;
use crate::process::Process;
use fastpath_io::{Descriptor, View};
use fastpath_protocol::layout::Layout;
use std::rc::Rc;
use std::sync::Arc;

fn negative(what: &str, value: i64) -> Error {
    Error::new(MPI_ERR_ARG, format!("the {what} {value} is negative: pass 0 or more"))
}

impl File {
    pub(super) fn with_descriptor<T>(
        &self, body: impl FnOnce(&Descriptor) -> std::result::Result<T, AccessFailure>,
    ) -> std::result::Result<T, AccessFailure> {
        body(&*self.open_descriptor()?)
    }

    pub(super) fn open_descriptor(&self) -> std::result::Result<Arc<Descriptor>, AccessFailure> {
        let descriptor = self.descriptor.borrow().clone();
        descriptor.ok_or_else(|| Error::new(MPI_ERR_FILE, "the file is closed").into())
    }

    pub(super) fn require_writable(&self) -> Result {
        match self.has_mode(MPI_MODE_RDONLY) {
            true => Err(Error::new(
                MPI_ERR_READ_ONLY,
                format!(
                    "file \"{}\" was opened with MPI_MODE_RDONLY and cannot be changed",
                    self.name
                ),
            )),
            false => Ok(()),
        }
    }

    fn check_size(&self, size: i64) -> Result {
        self.require_writable()?;
        match size < 0 {
            true => Err(negative("size", size)),
            false => Ok(()),
        }
    }

    /// `MPI_File_set_size`, performed by rank 0. Fails on all ranks or on none.
    pub fn set_size(&self, p: &Process, size: i64) -> Result {
        self.change_size(p, size, |file| Ok(file.set_size(size)?))
    }

    /// `MPI_File_preallocate`, performed by rank 0. Fails on all ranks or on none.
    pub fn preallocate(&self, p: &Process, size: i64) -> Result {
        self.change_size(p, size, |file| Ok(file.allocate(size)?))
    }

    fn change_size(
        &self, p: &Process, size: i64,
        change: impl FnOnce(&Descriptor) -> std::result::Result<(), AccessFailure>,
    ) -> Result {
        self.agree(p, self.check_size(size).map_err(AccessFailure::Other))?;
        self.require_same(p, "the size", size as u64)?;
        let own = match self.comm.rank {
            0 => self.with_descriptor(change),
            _ => Ok(()),
        };
        self.agree(p, own)
    }

    /// `MPI_File_get_size`, in bytes.
    pub fn size(&self) -> Result<i64> {
        self.with_descriptor(|file| Ok(file.size()?)).map_err(|refused| self.explain(refused))
    }

    /// `MPI_File_sync`. Fails on all ranks or on none.
    pub fn sync(&self, p: &Process) -> Result {
        let own = match self.has_mode(MPI_MODE_RDONLY) {
            true => Ok(()),
            false => self.with_descriptor(|file| Ok(file.sync()?)),
        };
        self.agree(p, own)
    }

    /// `MPI_File_set_info`. Hints with invalid values are ignored. Fails on all ranks or on none.
    pub fn set_info(&self, p: &Process, given: Result<Vec<(String, String)>>) -> Result {
        // Data sieving must not change while accesses with the old locking are under way.
        helper::finish();
        let ((), hints) = self.agree_on_hints(p, given.map(|given| ((), given)))?;
        self.use_hints(hints);
        Ok(())
    }

    /// Merges hints, and agrees on them with the other ranks. Fails on all ranks if a rank refuses its arguments.
    fn agree_on_hints<T>(
        &self, p: &Process, given: Result<(T, Vec<(String, String)>)>,
    ) -> Result<(T, Hints)> {
        let mut hints = self.hints.borrow().clone();
        let given = given.map(|(value, given)| {
            report::tell_ignored(p, &self.comm, &self.name, hints.merge(given));
            value
        });
        let given = given.map_err(AccessFailure::Other);
        let more = [hints.sieve_word()];
        let told = agree_and_tell::<_, { TOLD + 1 }>(p, &self.comm, &self.name, given, &more);
        let (value, all) = told?;
        hints.agree_on_sieve(all.iter().map(|told| told[TOLD]));
        Ok((value, hints))
    }

    fn use_hints(&self, hints: Hints) {
        if let Some(descriptor) = &*self.descriptor.borrow() {
            descriptor.set_sieving(hints.reads_between());
        }
        self.hints.replace(hints);
    }

    /// `MPI_File_get_info`.
    pub fn info(&self, p: &Process) -> Info {
        self.hints.borrow().describe(&self.named, self.aggregators(p))
    }

    /// Returns the group of the file (`MPI_File_get_group`).
    pub fn group(&self) -> Rc<crate::objects::group::Group> {
        self.comm.group.clone()
    }

    /// `MPI_File_set_atomicity`. Errors, equal on all ranks: `MPI_ERR_UNSUPPORTED_OPERATION` if locks do not exclude
    /// ranks of other hosts; `MPI_ERR_NOT_SAME`.
    pub fn set_atomicity(&self, p: &Process, atomic: bool) -> Result {
        // The locking must not change while accesses are under way.
        helper::finish();
        self.require_same(p, "the flag of atomicity", u64::from(atomic))?;
        if atomic && self.local_locks && self.hosts(p) > 1 {
            let text = format!(
                "file \"{}\" cannot be atomic: with the mount options nolock or local_lock, locks \
                 work only within one host, but the ranks of the file are on {} hosts; mount the \
                 file system without these options",
                self.name,
                self.hosts(p)
            );
            return Err(Error::new(MPI_ERR_UNSUPPORTED_OPERATION, text));
        }
        self.atomic.set(atomic);
        Ok(())
    }

    /// `MPI_File_get_atomicity`.
    pub fn is_atomic(&self) -> bool {
        self.atomic.get()
    }

    /// `MPI_File_set_view`. Sets both file pointers to 0. Errors, of one class on all ranks: `MPI_ERR_ARG` for an
    /// invalid displacement, `MPI_ERR_ARG` or `MPI_ERR_TYPE` for types that form no view,
    /// `MPI_ERR_UNSUPPORTED_DATAREP`, `MPI_ERR_NOT_SAME`.
    pub fn set_view(
        &self, p: &Process, displacement: i64, (etype, filetype): (usize, usize),
        representation: &str, given: Result<Vec<(String, String)>>,
    ) -> Result {
        // The hints may change the locking, which must not happen while accesses are under way.
        helper::finish();
        let shown = given.and_then(|given| {
            let shown = self.make_view(p, displacement, (etype, filetype), representation)?;
            Ok((shown, given))
        });
        let (shown, hints) = self.agree_on_hints(p, shown)?;
        let unit = shown.etype.layout().extent() as u64;
        self.require_same(p, "the extent of the etype", unit)?;
        self.use_hints(hints);
        self.shown.replace(Rc::new(shown));
        self.position.set(0);
        self.move_shared(p, 0)
    }

    fn make_view(
        &self, p: &Process, displacement: i64, (etype, filetype): (usize, usize),
        representation: &str,
    ) -> Result<FileView> {
        let displacement = match displacement {
            MPI_DISPLACEMENT_CURRENT if self.has_mode(MPI_MODE_SEQUENTIAL) => {
                self.byte_offset(self.shared_position(p)?)?
            }
            MPI_DISPLACEMENT_CURRENT => {
                let text =
                    "MPI_DISPLACEMENT_CURRENT is for files with MPI_MODE_SEQUENTIAL: pass a number";
                return Err(Error::new(MPI_ERR_ARG, text));
            }
            displacement if displacement < 0 => {
                return Err(negative("displacement", displacement));
            }
            displacement => displacement,
        };
        let representation = Representation::find(p, representation)?;
        let (etype, filetype) = (p.datatype(etype)?, p.datatype(filetype)?);
        etype.check_ready()?;
        filetype.check_ready()?;
        let there = representation.in_file(p, &filetype)?;
        let element = representation.in_file(p, &etype)?;
        let unit = element.layout().size();
        let writes = !self.has_mode(MPI_MODE_RDONLY);
        check_view(element.layout(), there.layout(), writes)?;
        check_basic_types(&etype, &filetype)?;
        let view = View::new(displacement, there.layout().clone());
        Ok(FileView {
            unit,
            is_ascending: view.is_ascending(),
            view,
            etype,
            filetype,
            representation,
        })
    }

    /// Returns the extent of a datatype in the file (`MPI_File_get_type_extent`). Errors: `MPI_ERR_CONVERSION` if a
    /// conversion function of the program fails.
    pub fn type_extent(&self, p: &Process, datatype: &Rc<Datatype>) -> Result<i64> {
        let there = self.shown().representation.in_file(p, datatype)?;
        Ok(there.extent().1)
    }

    /// Returns the offset in the file, in bytes, of etype `position` of the view (`MPI_File_get_byte_offset`). Errors:
    /// `MPI_ERR_ARG` for a position that no file can have.
    pub fn byte_offset(&self, position: i64) -> Result<i64> {
        let shown = self.shown();
        let at = u64::try_from(position).map_err(|_| negative("offset", position))?;
        if shown.view.size() == 0 {
            return Ok(shown.view.displacement());
        }
        at.checked_mul(shown.unit()).and_then(|at| shown.view.offset_of(at)).ok_or_else(|| {
            let text = format!(
                "the offset {position} is beyond the largest possible file size: pass a smaller \
                 offset"
            );
            Error::new(MPI_ERR_ARG, text)
        })
    }

    /// Returns the individual file pointer, in etypes.
    pub fn position(&self) -> Result<i64> {
        self.require_random()?;
        Ok(self.position.get())
    }

    fn target(&self, current: i64, offset: i64, whence: i32) -> Result<i64> {
        let from = match whence {
            MPI_SEEK_SET => 0,
            MPI_SEEK_CUR => current,
            MPI_SEEK_END => self.shown().units_before(self.size()?),
            _ => {
                let text = format!("{whence} is not MPI_SEEK_SET, MPI_SEEK_CUR or MPI_SEEK_END");
                return Err(Error::new(MPI_ERR_ARG, text));
            }
        };
        match from.checked_add(offset) {
            Some(to) if to >= 0 => Ok(to),
            _ => Err(Error::new(
                MPI_ERR_ARG,
                format!(
                    "a seek by {offset} from {from} leads to a negative position: seek to 0 or \
                     beyond"
                ),
            )),
        }
    }

    /// `MPI_File_seek`. Errors: `MPI_ERR_ARG`, `MPI_ERR_UNSUPPORTED_OPERATION`.
    pub fn seek(&self, offset: i64, whence: i32) -> Result {
        self.require_random()?;
        self.position.set(self.target(self.position.get(), offset, whence)?);
        Ok(())
    }

    /// `MPI_File_seek_shared`. Errors: see [`File::seek`], equal on all ranks.
    pub fn seek_shared(&self, p: &Process, offset: i64, whence: i32) -> Result {
        self.require_same(p, "the offset", offset as u64)?;
        self.require_same(p, "whence", whence as u64)?;
        let target = self
            .require_random()
            .and_then(|()| self.shared_position(p))
            .and_then(|current| self.target(current, offset, whence));
        let target = self.agree(p, target.map_err(AccessFailure::Other))?;
        self.move_shared(p, target)
    }
}

/// Checks that a filetype consists of etypes, starts at 0 or later, and has nondecreasing displacements (MPI 5.0,
/// section 14.3).
fn check_view(etype: &Layout, filetype: &Layout, writes: bool) -> Result {
    let wrong = |what: String| Err(Error::new(MPI_ERR_ARG, what));
    let (unit, size) = (etype.size(), filetype.size());
    if unit == 0 {
        return wrong("the etype has a size of 0 bytes".into());
    }
    if !size.is_multiple_of(unit) {
        return wrong(format!(
            "the filetype's {size} bytes are not a multiple of the etype's {unit} bytes: build the \
             filetype from the etype"
        ));
    }
    for (name, layout) in [("etype", etype), ("filetype", filetype)] {
        if layout.size() == 0 {
            continue;
        }
        if layout.true_lb() < 0 {
            return wrong(format!(
                "the {name} has a negative displacement: pass displacements of 0 or more"
            ));
        }
        if !layout.is_nondecreasing() {
            return wrong(format!(
                "the displacements of the {name} decrease: list the blocks in ascending order"
            ));
        }
        if writes && !layout.is_ascending() {
            return wrong(format!(
                "blocks of the {name} overlap, and the file is open for writing: remove the \
                 overlap, or open the file with MPI_MODE_RDONLY"
            ));
        }
    }
    if size > 0 && filetype.extent() <= 0 {
        return wrong(format!(
            "the filetype's extent is {}: pass a filetype with an extent above 0",
            filetype.extent()
        ));
    }
    Ok(())
}

/// Checks that a filetype has the basic types of a whole number of etypes, in order (MPI 5.0, section 14.1.1). Bytes
/// match any type (`docs/decisions/0081-bytes-in-a-view.md`).
fn check_basic_types(etype: &Datatype, filetype: &Datatype) -> Result {
    let (unit, all) = (etype.signature(), filetype.signature());
    let has_bytes = |basic: &Basic| matches!(basic.kind, BasicKind::Byte | BasicKind::Packed);
    let copies = all.bytes().checked_div(unit.bytes()).unwrap_or(0);
    if unit.digest(copies) == all.digest(1)
        || [unit, all].iter().any(|part| part.basics().iter().any(has_bytes))
    {
        return Ok(());
    }
    let list = |part: &Signature| {
        let names = part.basics().iter().map(|basic| format!("{basic:?}")).collect::<Vec<_>>();
        names.join(", ")
    };
    let text = format!(
        "the filetype ({}) is not made of etypes ({}): build the filetype from the etype, or pass \
         MPI_BYTE as the etype",
        list(all),
        list(unit)
    );
    Err(Error::new(MPI_ERR_ARG, text))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_protocol::layout::StructPart;

    #[test]
    fn view__shows_a_file_from_front_to_back() {
        let int = Layout::basic(4, 4);
        let at = |places: &[i64]| Layout::indexed(&int, 1, places.iter().copied()).unwrap();
        let check = |etype: &Layout, filetype: &Layout, writes| {
            let refused = check_view(etype, filetype, writes).err();
            refused.map_or(String::new(), |error| error.to_string())
        };
        assert_eq!(check(&int, &at(&[0, 8, 16]), true), "");
        for writes in [true, false] {
            assert!(check(&int, &at(&[8, 0]), writes).contains("filetype decrease"));
            assert!(check(&at(&[8, 0]), &at(&[8, 0]), writes).contains("etype decrease"));
            assert!(check(&int, &at(&[-4, 8]), writes).contains("negative"));
            assert!(
                check(&int, &Layout::contiguous(6).unwrap(), writes).contains("not a multiple")
            );
            assert!(check(&Layout::empty(), &int, writes).contains("0 bytes"));
            assert_eq!(check(&int, &Layout::empty(), writes), "");
        }
        // Overlapping bytes are allowed in reads.
        for places in [[0, 0], [0, 2]] {
            assert!(check(&int, &at(&places), true).contains("overlap"));
            assert_eq!(check(&int, &at(&places), false), "");
        }
        // The check also works for long lists.
        let long = at(&(0..5_000_000).map(|i| i * 8 + i % 3).collect::<Vec<_>>());
        assert_eq!(check(&int, &long, true), "");
        let turned = Layout::structure([&long, &int].map(|layout| StructPart {
            layout,
            count: 1,
            displacement: 0,
        }));
        assert!(check(&int, &turned.unwrap(), true).contains("decrease"));
    }
}
