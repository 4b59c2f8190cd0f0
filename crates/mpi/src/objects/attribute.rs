//! Attribute keys, and attributes of communicators, datatypes and windows (MPI-5.0 section 7.7).
#![allow(unsafe_code)]

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::table::{HandleKind, HandleTable};
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::rc::Rc;

/// Kind of object that an attribute key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyvalKind {
    /// Communicators.
    Comm,
    /// Datatypes.
    Type,
    /// Windows.
    Win,
}

impl KeyvalKind {
    fn noun(self) -> &'static str {
        match self {
            KeyvalKind::Comm => "communicator",
            KeyvalKind::Type => "datatype",
            KeyvalKind::Win => "window",
        }
    }
}

/// Copy callback: object, key, extra state, value, output value, output flag.
type CopyFunction =
    unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
/// Delete callback: object, key, value, extra state.
type DeleteFunction = unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void) -> c_int;

#[derive(Debug, Clone, Copy)]
enum OnCopy {
    Leave,
    Share,
    Call(CopyFunction),
}

/// Attribute key with its callbacks (MPI 5.0, 7.7).
#[derive(Debug)]
pub struct Keyval {
    kind: KeyvalKind,
    on_copy: OnCopy,
    on_delete: Option<DeleteFunction>,
    extra_state: *mut c_void,
    /// Number of attributes with this key.
    uses: Cell<usize>,
    /// Whether the user has freed the key. The key is removed with its last attribute.
    freed: Cell<bool>,
}

impl HandleKind for Keyval {
    const NOUN: &'static str = "attribute key";
    const NULL: (usize, &'static str) = (MPI_KEYVAL_INVALID as usize, "MPI_KEYVAL_INVALID");
    const CLASS: i32 = MPI_ERR_KEYVAL;
}

#[derive(Debug, Clone)]
struct Attribute {
    key: i32,
    keyval: Rc<Keyval>,
    value: *mut c_void,
}

/// Attributes of one object, in the order in which they were set. A clone has none: [`copy_attributes`] copies them
/// through the user's callbacks.
#[derive(Debug, Default)]
pub struct Attributes(RefCell<Vec<Attribute>>);

impl Clone for Attributes {
    fn clone(&self) -> Self {
        Attributes::default()
    }
}

impl Attributes {
    fn find(&self, keyval: &Rc<Keyval>) -> Option<usize> {
        self.0.borrow().iter().position(|a| Rc::ptr_eq(&a.keyval, keyval))
    }
}

/// An object that has attributes.
#[derive(Clone, Copy)]
pub struct Holder<'a> {
    /// Kind of the object.
    pub kind: KeyvalKind,
    /// Handle of the object.
    pub handle: usize,
    /// Attributes of the object.
    pub attributes: &'a Attributes,
}

/// Services of the process that attributes need.
pub trait Keyvals {
    /// Table of attribute keys.
    fn keyvals(&self) -> &HandleTable<Keyval>;
    /// Returns the address of a predefined attribute of communicators, null if it has no value; `None` for another key.
    fn predefined(&self, key: i32) -> Option<*mut i32>;
    /// Calls a function of the program outside of MPI.
    fn run_outside(&self, function: impl FnOnce() -> c_int) -> c_int;
}

/// Makes an attribute key. `copy` and `delete` are addresses of the user's functions, or one of `MPI_*_NULL_COPY_FN`,
/// `MPI_*_DUP_FN`, `MPI_*_NULL_DELETE_FN`. Errors: `MPI_ERR_OTHER` if no key is free.
///
/// # Safety
/// Other addresses must be functions of the standard's type for `kind` while the key is in use.
pub unsafe fn create_keyval(
    p: &impl Keyvals, kind: KeyvalKind, copy: usize, delete: usize, extra_state: *mut c_void,
) -> Result<i32> {
    let on_copy = match copy {
        MPI_COMM_NULL_COPY_FN => OnCopy::Leave,
        MPI_COMM_DUP_FN => OnCopy::Share,
        // SAFETY: the address is a function of this type, by the contract of `create_keyval`.
        _ => OnCopy::Call(unsafe { std::mem::transmute::<usize, CopyFunction>(copy) }),
    };
    let on_delete = match delete {
        MPI_COMM_NULL_DELETE_FN => None,
        // SAFETY: the address is a function of the type for `kind`, by the contract of `create_keyval`.
        _ => Some(unsafe { std::mem::transmute::<usize, DeleteFunction>(delete) }),
    };
    let (uses, freed) = (Cell::new(0), Cell::new(false));
    let keyval = Keyval { kind, on_copy, on_delete, extra_state, uses, freed };
    // Handles of tables are positive and fit an int.
    Ok(p.keyvals().publish(keyval)? as i32)
}

/// Frees a key. The key's attributes stay, and can be read and deleted. While attributes with the key exist, a second
/// call does nothing, because programs free keys in their delete callbacks. Errors: `MPI_ERR_KEYVAL` for an invalid
/// key.
pub fn free_keyval(p: &impl Keyvals, kind: KeyvalKind, key: i32) -> Result {
    let keyval = find_keyval(p, kind, key)?;
    keyval.freed.set(true);
    forget_unused(p, key, &keyval);
    Ok(())
}

fn already_freed(key: i32) -> Error {
    Error::new(MPI_ERR_KEYVAL, format!("the attribute key {key} was freed already"))
}

fn find_keyval(p: &impl Keyvals, kind: KeyvalKind, key: i32) -> Result<Rc<Keyval>> {
    let of_window = kind == KeyvalKind::Win && (MPI_WIN_BASE..=MPI_WIN_MODEL).contains(&key);
    if of_window || predefined_address(p, kind, key).is_some() {
        let message = "the attribute is predefined and can be read, but not set, deleted or freed";
        let advice = "use a key that the program has created";
        return Err(Error::new(MPI_ERR_KEYVAL, message).with_advice(Some(advice)));
    }
    let keyval = p.keyvals().find(key as usize)?;
    if keyval.kind == kind {
        return Ok(keyval);
    }
    let (own, other) = (keyval.kind.noun(), kind.noun());
    let message = format!("the attribute key {key} is for a {own}, not for a {other}");
    Err(Error::new(MPI_ERR_KEYVAL, message))
}

fn forget_unused(p: &impl Keyvals, key: i32, keyval: &Keyval) {
    if keyval.freed.get() && keyval.uses.get() == 0 {
        p.keyvals().remove(key as usize);
    }
}

fn predefined_address(p: &impl Keyvals, kind: KeyvalKind, key: i32) -> Option<*mut c_void> {
    if kind != KeyvalKind::Comm {
        return None;
    }
    p.predefined(key).map(<*mut i32>::cast)
}

/// Returns the value of an attribute, or `None` if it is not set. Predefined attributes can be read on every
/// communicator. Their value is the address of an `int`. Errors: `MPI_ERR_KEYVAL` for an invalid key.
pub fn get_attribute(p: &impl Keyvals, holder: Holder, key: i32) -> Result<Option<*mut c_void>> {
    if let Some(address) = predefined_address(p, holder.kind, key) {
        return Ok(Some(address).filter(|address| !address.is_null()));
    }
    let keyval = find_keyval(p, holder.kind, key)?;
    let attributes = holder.attributes;
    Ok(attributes.find(&keyval).map(|index| attributes.0.borrow()[index].value))
}

/// Sets an attribute. An existing value is deleted first, as by [`delete_attribute`]. Errors: `MPI_ERR_KEYVAL` for an
/// invalid key; the code of the user's delete function.
pub fn set_attribute(p: &impl Keyvals, holder: Holder, key: i32, value: *mut c_void) -> Result {
    let keyval = find_keyval(p, holder.kind, key)?;
    if keyval.freed.get() {
        return Err(already_freed(key));
    }
    while let Some(index) = holder.attributes.find(&keyval) {
        delete_at(p, holder, index)?;
    }
    keyval.uses.set(keyval.uses.get() + 1);
    holder.attributes.0.borrow_mut().push(Attribute { key, keyval, value });
    Ok(())
}

/// Deletes an attribute, if it is set. Errors: `MPI_ERR_KEYVAL` for an invalid key; the code of the user's delete
/// function, and then the attribute stays.
pub fn delete_attribute(p: &impl Keyvals, holder: Holder, key: i32) -> Result {
    let keyval = find_keyval(p, holder.kind, key)?;
    match holder.attributes.find(&keyval) {
        Some(index) => delete_at(p, holder, index),
        None => Ok(()),
    }
}

/// Deletes all attributes, the last one set first. Stops at the first error, the code of a delete function.
pub fn delete_attributes(p: &impl Keyvals, holder: Holder) -> Result {
    loop {
        let Some(last) = holder.attributes.0.borrow().len().checked_sub(1) else {
            return Ok(());
        };
        delete_at(p, holder, last)?;
    }
}

/// Deletes an attribute. The attribute is removed before the user's delete function is called, so that this function
/// can change the other attributes. If the function fails, the attribute is restored.
fn delete_at(p: &impl Keyvals, holder: Holder, index: usize) -> Result {
    let attribute = holder.attributes.0.borrow_mut().remove(index);
    let Attribute { key, keyval, value } = &attribute;
    if let Some(function) = keyval.on_delete {
        // SAFETY: the contract of `create_keyval` gives the function this type.
        let delete = || unsafe { function(holder.handle, *key, *value, keyval.extra_state) };
        let code = p.run_outside(delete);
        if code != MPI_SUCCESS {
            let mut attributes = holder.attributes.0.borrow_mut();
            let index = index.min(attributes.len());
            attributes.insert(index, attribute);
            return Err(refused("delete", code));
        }
    }
    keyval.uses.set(keyval.uses.get() - 1);
    forget_unused(p, *key, keyval);
    Ok(())
}

/// Copies the attributes of `from` to its duplicate `to`, in the order in which they were set, by the user's copy
/// functions. After an error, the attributes copied so far are on `to`. Errors: the code of the user's copy function.
pub fn copy_attributes(p: &impl Keyvals, from: Holder, to: &Attributes) -> Result {
    let all = from.attributes.0.borrow().clone();
    for Attribute { key, keyval, value } in all {
        let value = match keyval.on_copy {
            OnCopy::Leave => continue,
            OnCopy::Share => value,
            OnCopy::Call(function) => {
                let mut new: *mut c_void = std::ptr::null_mut();
                let mut flag = 0;
                let place = (&raw mut new).cast();
                // SAFETY: the contract of `create_keyval` gives the function this type, and its outputs outlive the
                // call.
                let copy = || unsafe {
                    let state = keyval.extra_state;
                    function(from.handle, key, state, value, place, &mut flag)
                };
                let code = p.run_outside(copy);
                if code != MPI_SUCCESS {
                    return Err(refused("copy", code));
                }
                if flag == 0 {
                    continue;
                }
                new
            }
        };
        keyval.uses.set(keyval.uses.get() + 1);
        to.0.borrow_mut().push(Attribute { key, keyval, value });
    }
    Ok(())
}

fn refused(what: &str, code: i32) -> Error {
    Error::new(code, format!("the user's attribute {what} function returned error code {code}"))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::process::Process;

    /// Record of callbacks: kind of call, object, key, value.
    type Log = RefCell<Vec<(char, usize, i32, usize)>>;

    unsafe extern "C" fn copy_plus_one(
        object: usize, key: c_int, state: *mut c_void, value: *mut c_void, out: *mut c_void,
        flag: *mut c_int,
    ) -> c_int {
        // SAFETY: the tests pass a `Log` as extra state, and `copy_attributes` passes writable outputs.
        unsafe {
            (*state.cast::<Log>()).borrow_mut().push(('c', object, key, value as usize));
            *flag = (value as usize != 13) as c_int;
            *out.cast::<*mut c_void>() = value.wrapping_byte_add(1);
        }
        if value as usize == 66 { MPI_ERR_OTHER } else { MPI_SUCCESS }
    }

    unsafe extern "C" fn log_delete(
        object: usize, key: c_int, value: *mut c_void, state: *mut c_void,
    ) -> c_int {
        // SAFETY: the tests pass a log as extra state.
        unsafe { (*state.cast::<Log>()).borrow_mut().push(('d', object, key, value as usize)) };
        if value as usize == 77 { MPI_ERR_INTERN } else { MPI_SUCCESS }
    }

    fn value(number: usize) -> *mut c_void {
        std::ptr::without_provenance_mut(number)
    }

    fn holder(handle: usize, attributes: &Attributes) -> Holder<'_> {
        Holder { kind: KeyvalKind::Comm, handle, attributes }
    }

    fn logging_key(p: &Process, log: &Log) -> i32 {
        let (copy, delete) =
            (copy_plus_one as CopyFunction as usize, log_delete as DeleteFunction as usize);
        // SAFETY: both are functions of the types that `create_keyval` expects.
        unsafe {
            create_keyval(p, KeyvalKind::Comm, copy, delete, (log as *const Log).cast_mut().cast())
        }
        .unwrap()
    }

    fn get(p: &Process, attributes: &Attributes, key: i32) -> Option<usize> {
        get_attribute(p, holder(5, attributes), key).unwrap().map(|value| value as usize)
    }

    #[test]
    fn attributes__are_set_replaced_and_deleted() {
        let (p, log, attributes) = (Process::new(), Log::default(), Attributes::default());
        let key = logging_key(&p, &log);
        assert_eq!(get(&p, &attributes, key), None);
        set_attribute(&p, holder(5, &attributes), key, value(1)).unwrap();
        set_attribute(&p, holder(5, &attributes), key, value(0)).unwrap();
        assert_eq!(get(&p, &attributes, key), Some(0));
        delete_attribute(&p, holder(5, &attributes), key).unwrap();
        delete_attribute(&p, holder(5, &attributes), key).unwrap();
        assert_eq!(get(&p, &attributes, key), None);
        assert_eq!(*log.borrow(), [('d', 5, key, 1), ('d', 5, key, 0)]);
    }

    #[test]
    fn copy__asks_the_function_or_shares_or_leaves() {
        let (p, log, attributes) = (Process::new(), Log::default(), Attributes::default());
        let keys = [logging_key(&p, &log), logging_key(&p, &log)];
        let [leave, share] = [MPI_NULL_COPY_FN, MPI_DUP_FN].map(|copy| {
            // SAFETY: the addresses are constants, not functions.
            unsafe { create_keyval(&p, KeyvalKind::Comm, copy, MPI_NULL_DELETE_FN, value(0)) }
                .unwrap()
        });
        for (key, number) in [(keys[0], 10), (keys[1], 13), (leave, 20), (share, 30)] {
            set_attribute(&p, holder(5, &attributes), key, value(number)).unwrap();
        }
        let copy = Attributes::default();
        copy_attributes(&p, holder(5, &attributes), &copy).unwrap();
        let copied = [keys[0], keys[1], leave, share].map(|key| get(&p, &copy, key));
        assert_eq!(copied, [Some(11), None, None, Some(30)]);
        set_attribute(&p, holder(5, &attributes), keys[1], value(66)).unwrap();
        let error =
            copy_attributes(&p, holder(5, &attributes), &Attributes::default()).unwrap_err();
        assert_eq!(error.code(), MPI_ERR_OTHER);
    }

    #[test]
    fn delete_all__goes_backwards_and_stops_at_an_error() {
        let (p, log, attributes) = (Process::new(), Log::default(), Attributes::default());
        let keys: Vec<i32> = (0..4).map(|_| logging_key(&p, &log)).collect();
        for (&key, number) in keys.iter().zip([1, 77, 3, 4]) {
            set_attribute(&p, holder(9, &attributes), key, value(number)).unwrap();
        }
        let error = delete_attributes(&p, holder(9, &attributes)).unwrap_err();
        assert_eq!(error.code(), MPI_ERR_INTERN);
        let order: Vec<usize> = log.borrow().iter().map(|entry| entry.3).collect();
        assert_eq!(order, [4, 3, 77]);
        assert_eq!(get(&p, &attributes, keys[1]), Some(77), "the attribute stays");
    }

    #[test]
    fn freed_key__lives_until_its_last_attribute_goes() {
        let (p, log, attributes) = (Process::new(), Log::default(), Attributes::default());
        let key = logging_key(&p, &log);
        set_attribute(&p, holder(5, &attributes), key, value(1)).unwrap();
        free_keyval(&p, KeyvalKind::Comm, key).unwrap();
        free_keyval(&p, KeyvalKind::Comm, key).unwrap();
        assert_eq!(get(&p, &attributes, key), Some(1));
        assert!(set_attribute(&p, holder(5, &attributes), key, value(2)).is_err());
        delete_attribute(&p, holder(5, &attributes), key).unwrap();
        assert!(get_attribute(&p, holder(5, &attributes), key).is_err());
        assert_eq!(free_keyval(&p, KeyvalKind::Comm, key).unwrap_err().code(), MPI_ERR_KEYVAL);
        assert_eq!(log.borrow().len(), 1);
    }

    #[test]
    fn keys__are_of_one_kind_and_not_predefined() {
        let (p, log, attributes) = (Process::new(), Log::default(), Attributes::default());
        let key = logging_key(&p, &log);
        let code = |result: Result| result.unwrap_err().code();
        assert_eq!(code(free_keyval(&p, KeyvalKind::Type, key)), MPI_ERR_KEYVAL);
        for bad in [MPI_KEYVAL_INVALID, -1, 600, i32::MAX, MPI_TAG_UB] {
            assert_eq!(code(free_keyval(&p, KeyvalKind::Comm, bad)), MPI_ERR_KEYVAL);
            assert_eq!(
                code(set_attribute(&p, holder(5, &attributes), bad, value(1))),
                MPI_ERR_KEYVAL
            );
            assert_eq!(code(delete_attribute(&p, holder(5, &attributes), bad)), MPI_ERR_KEYVAL);
        }
    }

    #[test]
    fn predefined__are_addresses_of_ints() {
        let (p, attributes) = (Process::new(), Attributes::default());
        let read = |key| {
            let address = get_attribute(&p, holder(5, &attributes), key).unwrap()?;
            // SAFETY: predefined attributes are addresses of ints that live as long as the process.
            Some(unsafe { *address.cast::<i32>() })
        };
        assert_eq!(read(MPI_TAG_UB), Some(i32::MAX));
        assert_eq!(read(MPI_HOST), Some(MPI_PROC_NULL));
        assert_eq!(read(MPI_IO), Some(MPI_ANY_SOURCE));
        assert_eq!((read(MPI_APPNUM), read(MPI_UNIVERSE_SIZE)), (None, None));
        p.environment.appnum.set(Some(2));
        assert_eq!(read(MPI_APPNUM), Some(2));
        let class = p.codes.add_class().unwrap();
        assert_eq!(read(MPI_LASTUSEDCODE), Some(class));
    }
}
