//! Info objects: ordered pairs of key and value (MPI-5.0 chapter 10), and `MPI_INFO_ENV`. They also work before
//! initialisation and after finalisation.

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::table::{HandleKind, HandleTable};
use fastpath_base::device;
use std::cell::RefCell;
use std::rc::Rc;

/// Kinds of memory whose addresses may be passed (MPI-5.0 section 12.4.3).
pub const MEMORY_KINDS: &str = "system,mpi";

/// Returns the kinds of memory that messages and collective calls support now. With a CUDA driver these include the
/// kinds of the side document on memory allocation kinds, version 1.0.
pub fn memory_kinds() -> &'static str {
    match device::has_cuda() {
        true => "system,mpi,cuda:host,cuda:device,cuda:managed",
        false => MEMORY_KINDS,
    }
}

type InfoEntry = (Box<[u8]>, Box<[u8]>);

/// Info object. Keys and values are the bytes of C strings, without the NUL.
#[derive(Debug, Default)]
pub struct Info {
    pairs: RefCell<Vec<InfoEntry>>,
}

impl HandleKind for Info {
    const NOUN: &'static str = "info object";
    const NULL: (usize, &'static str) = (MPI_INFO_NULL, "MPI_INFO_NULL");
    const CLASS: i32 = MPI_ERR_INFO;
}

impl Info {
    /// Makes an info object of the given pairs.
    pub fn from_pairs<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let own = |(key, value): (K, V)| (key.as_ref().into(), value.as_ref().into());
        Info { pairs: RefCell::new(pairs.into_iter().map(own).collect()) }
    }

    /// Returns a copy with the pairs in the same order.
    #[must_use]
    pub fn duplicate(&self) -> Info {
        Info { pairs: RefCell::new(self.pairs.borrow().clone()) }
    }

    /// Adds a pair, or replaces the value of an existing key. Errors: `MPI_ERR_INFO_KEY` or `MPI_ERR_INFO_VALUE` if the
    /// key or value is too long, or the key is empty.
    pub fn set(&self, key: &[u8], value: &[u8]) -> Result {
        check_key(key)?;
        if value.len() >= MPI_MAX_INFO_VAL as usize {
            let message = format!(
                "the value has {} bytes, but at most {} are allowed",
                value.len(),
                MPI_MAX_INFO_VAL - 1
            );
            return Err(Error::new(MPI_ERR_INFO_VALUE, message));
        }
        let mut pairs = self.pairs.borrow_mut();
        match pairs.iter_mut().find(|(k, _)| **k == *key) {
            Some((_, old)) => *old = value.into(),
            None => pairs.push((key.into(), value.into())),
        }
        Ok(())
    }

    /// Removes a pair. Errors: `MPI_ERR_INFO_KEY` for a malformed key, `MPI_ERR_INFO_NOKEY` for an unknown key.
    pub fn delete(&self, key: &[u8]) -> Result {
        check_key(key)?;
        let mut pairs = self.pairs.borrow_mut();
        let Some(index) = pairs.iter().position(|(k, _)| **k == *key) else {
            let message =
                format!("the info object has no key \"{}\"", String::from_utf8_lossy(key));
            return Err(Error::new(MPI_ERR_INFO_NOKEY, message));
        };
        pairs.remove(index);
        Ok(())
    }

    /// Returns the value of a key. Errors: `MPI_ERR_INFO_KEY` for a malformed key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Box<[u8]>>> {
        check_key(key)?;
        let pairs = self.pairs.borrow();
        Ok(pairs.iter().find(|(k, _)| **k == *key).map(|(_, value)| value.clone()))
    }

    /// Number of keys.
    pub fn key_count(&self) -> usize {
        self.pairs.borrow().len()
    }

    /// Returns key number `n`, counted from 0 in the order of first use. Errors: `MPI_ERR_ARG` if there are fewer keys.
    pub fn key(&self, n: i32) -> Result<Box<[u8]>> {
        let pairs = self.pairs.borrow();
        let found = usize::try_from(n).ok().and_then(|index| pairs.get(index));
        found.map(|(key, _)| key.clone()).ok_or_else(|| {
            let message = format!("there is no key {n}: the info object has {} keys", pairs.len());
            Error::new(MPI_ERR_ARG, message)
        })
    }

    /// Returns all pairs as text, in the form in which calls take hints.
    pub fn to_hints(&self) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.pairs.borrow().iter().map(|(key, value)| (text(key), text(value))).collect()
    }
}

fn check_key(key: &[u8]) -> Result {
    if key.is_empty() {
        return Err(Error::new(MPI_ERR_INFO_KEY, "the key is empty"));
    }
    if key.len() >= MPI_MAX_INFO_KEY as usize {
        let message = format!(
            "the key has {} bytes, but at most {} are allowed",
            key.len(),
            MPI_MAX_INFO_KEY - 1
        );
        return Err(Error::new(MPI_ERR_INFO_KEY, message));
    }
    Ok(())
}

/// Finds the info object of a handle. `MPI_INFO_ENV` is made at its first use, which may precede initialisation.
/// Errors: `MPI_ERR_INFO` for an invalid handle.
pub fn find_info(infos: &HandleTable<Info>, handle: usize) -> Result<Rc<Info>> {
    if handle == MPI_INFO_ENV {
        register_predefined(infos);
    }
    infos.find(handle)
}

/// Finds the info object of a handle for a change, which excludes `MPI_INFO_ENV`. Errors: `MPI_ERR_INFO` for a handle
/// that is not an info object, or that may not be changed.
pub fn find_mutable_info(infos: &HandleTable<Info>, handle: usize) -> Result<Rc<Info>> {
    if handle == MPI_INFO_ENV {
        return Err(Error::new(MPI_ERR_INFO, "MPI_INFO_ENV cannot be changed or freed")
            .with_advice(Some("change a duplicate, which MPI_Info_dup makes")));
    }
    find_info(infos, handle)
}

/// Returns the hints of a handle that may be `MPI_INFO_NULL`. Errors: `MPI_ERR_INFO` for an invalid handle.
pub fn find_hints(infos: &HandleTable<Info>, handle: usize) -> Result<Vec<(String, String)>> {
    match handle {
        MPI_INFO_NULL => Ok(Vec::new()),
        _ => Ok(find_info(infos, handle)?.to_hints()),
    }
}

/// `MPI_Info_free`. Errors: `MPI_ERR_INFO` for a handle that is not an info object of the user.
pub fn free_info(infos: &HandleTable<Info>, handle: usize) -> Result {
    find_mutable_info(infos, handle)?;
    infos.remove(handle);
    Ok(())
}

/// Adds a pair to `MPI_INFO_ENV`. Initialisation adds `maxprocs` (number of ranks requested from `mpiexec`),
/// `thread_level`, and `host`, `soft`, `file` if given. Errors: see [`Info::set`].
pub fn extend_environment(infos: &HandleTable<Info>, key: &str, value: &str) -> Result {
    find_info(infos, MPI_INFO_ENV)?.set(key.as_bytes(), value.as_bytes())
}

/// Registers `MPI_INFO_ENV`.
pub fn register_predefined(infos: &HandleTable<Info>) {
    if infos.get(MPI_INFO_ENV).is_none() {
        infos.insert_predefined(MPI_INFO_ENV, describe_environment(None));
    }
}

/// Returns the info object of `MPI_Info_create_env`. `arguments` of `main` are read from `/proc` if `None`.
pub fn describe_environment(arguments: Option<Vec<Vec<u8>>>) -> Info {
    let arguments = arguments.unwrap_or_else(read_arguments);
    let info = Info::default();
    // Values that do not fit are omitted, because a hint is no reason to fail.
    let add = |key: &str, value: &[u8]| drop(info.set(key.as_bytes(), value));
    if let Some((command, rest)) = arguments.split_first() {
        add("command", command);
        if !rest.is_empty() {
            add("argv", &rest.join(&b' '));
        }
    }
    if let Ok(folder) = std::env::current_dir() {
        add("wdir", folder.as_os_str().as_encoded_bytes());
    }
    add("arch", std::env::consts::ARCH.as_bytes());
    add("mpi_memory_alloc_kinds", MEMORY_KINDS.as_bytes());
    info
}

fn read_arguments() -> Vec<Vec<u8>> {
    let text = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let text = text.strip_suffix(b"\0").unwrap_or(&text);
    text.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn code<T: std::fmt::Debug>(result: Result<T>) -> i32 {
        result.unwrap_err().code()
    }

    fn text(info: &Info, key: &str) -> Option<String> {
        info.get(key.as_bytes()).unwrap().map(|value| String::from_utf8(value.into()).unwrap())
    }

    #[test]
    fn pairs__keep_their_order() {
        let info = Info::default();
        for (key, value) in [("b", "1"), ("a", "2"), ("b", "3"), ("\u{e9}", "")] {
            info.set(key.as_bytes(), value.as_bytes()).unwrap();
        }
        assert_eq!(info.key_count(), 3);
        assert_eq!((&*info.key(0).unwrap(), &*info.key(1).unwrap()), (&b"b"[..], &b"a"[..]));
        assert_eq!(text(&info, "b").as_deref(), Some("3"));
        assert_eq!(text(&info, "\u{e9}").as_deref(), Some(""));
        assert_eq!(text(&info, "c"), None);
        info.delete(b"b").unwrap();
        assert_eq!(&*info.key(0).unwrap(), b"a");
        assert_eq!(code(info.delete(b"b")), MPI_ERR_INFO_NOKEY);
        for n in [-1, 2, i32::MAX] {
            assert_eq!(code(info.key(n)), MPI_ERR_ARG);
        }
    }

    #[test]
    fn limits__are_those_of_the_abi() {
        let info = Info::default();
        let (key, value) = (vec![b'k'; 255], vec![b'v'; 1023]);
        info.set(&key, &value).unwrap();
        assert_eq!(info.get(&key).unwrap().unwrap().len(), 1023);
        assert_eq!(code(info.set(&[b'k'; 256], b"")), MPI_ERR_INFO_KEY);
        assert_eq!(code(info.set(b"", b"")), MPI_ERR_INFO_KEY);
        assert_eq!(code(info.set(b"k", &[b'v'; 1024])), MPI_ERR_INFO_VALUE);
        assert_eq!(code(info.get(b"")), MPI_ERR_INFO_KEY);
        assert_eq!(info.key_count(), 1);
    }

    #[test]
    fn duplicate__is_independent() {
        let info = Info::from_pairs([("a", "1")]);
        let copy = info.duplicate();
        copy.set(b"a", b"2").unwrap();
        assert_eq!(text(&info, "a").as_deref(), Some("1"));
    }

    #[test]
    fn environment__is_there_before_initialisation() {
        let infos = HandleTable::new();
        let env = find_info(&infos, MPI_INFO_ENV).unwrap();
        assert!(text(&env, "command").is_some_and(|command| !command.is_empty()));
        assert_eq!(text(&env, "arch").as_deref(), Some(std::env::consts::ARCH));
        assert_eq!(code(free_info(&infos, MPI_INFO_ENV)), MPI_ERR_INFO);
        register_predefined(&infos);
        extend_environment(&infos, "maxprocs", "3").unwrap();
        assert_eq!(text(&env, "maxprocs").as_deref(), Some("3"));
        let own =
            describe_environment(Some(vec![b"prog".to_vec(), b"-a".to_vec(), b"b c".to_vec()]));
        assert_eq!(text(&own, "command").as_deref(), Some("prog"));
        assert_eq!(text(&own, "argv").as_deref(), Some("-a b c"));
    }

    #[test]
    fn handles__are_checked() {
        let infos = HandleTable::new();
        let handle = infos.publish(Info::default()).unwrap();
        find_mutable_info(&infos, handle).unwrap();
        free_info(&infos, handle).unwrap();
        for bad in [handle, MPI_INFO_NULL, 0, 12345] {
            assert_eq!(code(find_info(&infos, bad)), MPI_ERR_INFO);
            assert_eq!(code(free_info(&infos, bad)), MPI_ERR_INFO);
        }
        assert_eq!(find_hints(&infos, MPI_INFO_NULL).unwrap(), []);
    }
}
