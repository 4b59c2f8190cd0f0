//! Error classes and codes of the standard and of the user, and the last error.

use super::classes;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

struct UserCode {
    /// Class of the code; `None` if the number is itself a class.
    class: Option<i32>,
    text: Option<String>,
}

/// Error classes, codes and texts that the user added, and the last error that a call returned.
pub struct Codes {
    user: RefCell<BTreeMap<i32, UserCode>>,
    /// Value of `MPI_LASTUSEDCODE`. Numbers are not reused, so it only grows.
    last_used: Cell<i32>,
    last_error: RefCell<Option<(i32, String)>>,
}

impl Default for Codes {
    fn default() -> Self {
        Self::new()
    }
}

impl Codes {
    /// Makes an empty set of user codes.
    pub const fn new() -> Self {
        Codes {
            user: RefCell::new(BTreeMap::new()),
            last_used: Cell::new(MPI_ERR_LASTCODE),
            last_error: RefCell::new(None),
        }
    }

    /// Drops the codes, texts and last error of an exiting process.
    pub(crate) fn drop_all(&self) {
        self.user.take();
        self.last_error.take();
    }

    /// Returns the address of the value of `MPI_LASTUSEDCODE`.
    pub fn last_used_address(&self) -> *mut i32 {
        self.last_used.as_ptr()
    }

    /// `MPI_Add_error_class`. Errors: `MPI_ERR_OTHER` when no number is left.
    pub fn add_class(&self) -> Result<i32> {
        self.add(None)
    }

    /// `MPI_Add_error_code`. Errors: `MPI_ERR_ARG` if `class` is no error class.
    pub fn add_code(&self, class: i32) -> Result<i32> {
        let known = match self.user.borrow().get(&class) {
            Some(code) => code.class.is_none(),
            None => classes::find(class).is_some(),
        };
        if !known {
            return Err(Error::new(
                MPI_ERR_ARG,
                format!("{class} is not an error class: pass a class from MPI_Add_error_class"),
            ));
        }
        self.add(Some(class))
    }

    fn add(&self, class: Option<i32>) -> Result<i32> {
        let Some(number) = self.last_used.get().checked_add(1) else {
            return Err(Error::new(
                MPI_ERR_OTHER,
                "no number is left for another error code: remove error codes by \
                 MPI_Remove_error_code",
            ));
        };
        self.last_used.set(number);
        self.user.borrow_mut().insert(number, UserCode { class, text: None });
        Ok(number)
    }

    /// `MPI_Add_error_string`. Errors: `MPI_ERR_ARG` if the user did not add `code`, or if the text is too long.
    pub fn set_text(&self, code: i32, text: &str) -> Result {
        if text.len() >= MPI_MAX_ERROR_STRING as usize {
            let message = format!(
                "the error string has {} bytes, but at most {} are allowed",
                text.len(),
                MPI_MAX_ERROR_STRING - 1
            );
            return Err(Error::new(MPI_ERR_ARG, message));
        }
        let mut user = self.user.borrow_mut();
        user.get_mut(&code).ok_or_else(|| not_added(code))?.text = Some(text.to_string());
        Ok(())
    }

    /// `MPI_Remove_error_string`. Errors: `MPI_ERR_ARG` if the user did not add `code`, or if it has no text.
    pub fn remove_text(&self, code: i32) -> Result {
        let mut user = self.user.borrow_mut();
        let found = user.get_mut(&code).ok_or_else(|| not_added(code))?;
        match found.text.take() {
            Some(_) => Ok(()),
            None => Err(Error::new(
                MPI_ERR_ARG,
                format!(
                    "error code {code} has no string: none was added, or the string was \
                     removed already"
                ),
            )),
        }
    }

    /// `MPI_Remove_error_code`. Errors: `MPI_ERR_ARG` if the user did not add `code` as a code, or if it has a string.
    pub fn remove_code(&self, code: i32) -> Result {
        let mut user = self.user.borrow_mut();
        check_removable(user.get(&code), code, ["code", "class"])?;
        user.remove(&code);
        Ok(())
    }

    /// `MPI_Remove_error_class`. Errors: `MPI_ERR_ARG` if the user did not add `class` as a class, or if it has codes
    /// or a string.
    pub fn remove_class(&self, class: i32) -> Result {
        let mut user = self.user.borrow_mut();
        check_removable(user.get(&class), class, ["class", "code"])?;
        if let Some((code, _)) = user.iter().find(|(_, other)| other.class == Some(class)) {
            let message =
                format!("error class {class} still has the code {code}: remove its codes first");
            return Err(Error::new(MPI_ERR_ARG, message));
        }
        user.remove(&class);
        Ok(())
    }

    /// Returns whether `code` was added at run time.
    pub fn is_added(&self, code: i32) -> bool {
        self.user.borrow().contains_key(&code)
    }

    /// Returns the class of a code, or `MPI_ERR_UNKNOWN` for an unknown number.
    pub fn class(&self, code: i32) -> i32 {
        match self.user.borrow().get(&code) {
            Some(user) => user.class.unwrap_or(code),
            None if classes::find(code).is_some() => code,
            None => MPI_ERR_UNKNOWN,
        }
    }

    /// Returns the text of `code`: the user's text, or name and meaning of the class. The text of the last error
    /// includes its cause.
    pub fn text(&self, code: i32) -> String {
        if let Some(user) = self.user.borrow().get(&code) {
            return user.text.clone().unwrap_or_default();
        }
        let Some(class) = classes::find(code) else {
            return format!("{code} is not an error code of this MPI library");
        };
        let mut text = format!("{}: {}", class.name, class.meaning);
        match &*self.last_error.borrow() {
            Some((last, cause)) if *last == code => {
                text.push_str(" (");
                text.push_str(cause);
                text.push(')');
            }
            _ => {}
        }
        text
    }

    /// Stores the last error for [`Codes::text`].
    pub fn remember(&self, code: i32, cause: String) {
        *self.last_error.borrow_mut() = Some((code, cause));
    }
}

/// Checks that `number` is of the `wanted` kind ("code" or "class") and not of the `other` kind, and has no string.
fn check_removable(found: Option<&UserCode>, number: i32, [wanted, other]: [&str; 2]) -> Result {
    let found = found.ok_or_else(|| not_added(number))?;
    let is = if found.class.is_some() { "code" } else { "class" };
    let text = match &found.text {
        _ if is == other => format!("{number} is an error {other}, not an error {wanted}"),
        Some(_) => {
            format!("error {is} {number} still has a string: call MPI_Remove_error_string first")
        }
        None => return Ok(()),
    };
    Err(Error::new(MPI_ERR_ARG, text))
}

fn not_added(code: i32) -> Error {
    Error::new(
        MPI_ERR_ARG,
        format!(
            "{code} was not added at run time: pass a class from MPI_Add_error_class or a code \
             from MPI_Add_error_code"
        ),
    )
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn last_used(codes: &Codes) -> i32 {
        codes.last_used.get()
    }

    #[test]
    fn added__numbers_lie_above_the_standards() {
        let codes = Codes::new();
        let class = codes.add_class().unwrap();
        assert_eq!((class, last_used(&codes)), (MPI_ERR_LASTCODE + 1, class));
        let code = codes.add_code(class).unwrap();
        let other = codes.add_code(MPI_ERR_OTHER).unwrap();
        assert_eq!(last_used(&codes), other);
        assert_eq!(
            (codes.class(class), codes.class(code), codes.class(other)),
            (class, class, MPI_ERR_OTHER)
        );
        assert!(codes.add_code(code).is_err(), "a code is no class");
        assert!(codes.add_code(99_999).is_err());
    }

    #[test]
    fn text__is_the_users_or_the_standards() {
        let codes = Codes::new();
        let class = codes.add_class().unwrap();
        assert_eq!(codes.text(class), "");
        codes.set_text(class, "mine").unwrap();
        assert_eq!(codes.text(class), "mine");
        assert!(codes.set_text(MPI_ERR_OTHER, "mine").is_err());
        assert!(codes.set_text(class, &"x".repeat(512)).is_err());
        codes.set_text(class, &"x".repeat(511)).unwrap();
        assert!(codes.text(MPI_ERR_TRUNCATE).starts_with("MPI_ERR_TRUNCATE: "));
        assert!(codes.text(4711).contains("4711"));
        assert_eq!(codes.class(4711), MPI_ERR_UNKNOWN);
        assert_eq!(codes.class(-1), MPI_ERR_UNKNOWN);
    }

    #[test]
    fn text__of_the_last_error_has_its_cause() {
        let codes = Codes::new();
        codes.remember(MPI_ERR_RANK, "MPI_Send: rank 9 is not there".into());
        assert!(codes.text(MPI_ERR_RANK).ends_with("(MPI_Send: rank 9 is not there)"));
        assert!(!codes.text(MPI_ERR_TAG).contains("MPI_Send"));
    }

    #[test]
    fn remove__goes_from_string_to_code_to_class() {
        let codes = Codes::new();
        let class = codes.add_class().unwrap();
        let code = codes.add_code(class).unwrap();
        codes.set_text(code, "code").unwrap();
        assert!(codes.remove_code(code).is_err());
        assert!(codes.remove_class(class).is_err());
        assert!(codes.remove_class(code).is_err() && codes.remove_code(class).is_err());
        codes.remove_text(code).unwrap();
        assert!(codes.remove_text(code).is_err());
        codes.remove_code(code).unwrap();
        assert!(codes.remove_code(code).is_err());
        codes.remove_class(class).unwrap();
        for number in [class, 0, MPI_ERR_OTHER, -5] {
            assert!(codes.remove_class(number).is_err());
            assert!(codes.remove_code(number).is_err());
            assert!(codes.remove_text(number).is_err());
        }
        assert_eq!(codes.add_class().unwrap(), code + 1, "numbers are not used again");
    }
}
