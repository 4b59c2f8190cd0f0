//! Control variables: the rows of the configuration table that are not internal. They can be set before `MPI_Init`,
//! which reads them like the environment. Afterwards they can only be read.

use super::{enter, no_index, no_name};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::process::{self, ProcessPhase};
use fastpath_base::config::{self, Config, ConfigValue, Setting, VARIABLES, ValueKind, Variable};

/// Maximum number of characters of a text variable, including the terminator.
pub const TEXT_MAX: usize = 1024;

/// Datatype of a variable, as a tool sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// An `int` that is 0 or 1.
    Flag,
    /// An `int`: the index of one of the listed words.
    Choice(&'static [&'static str]),
    /// Characters: the value, written as in the environment variable.
    Text,
}

impl Shape {
    fn of(variable: &Variable) -> Shape {
        match variable.kind {
            ValueKind::Flag => Shape::Flag,
            ValueKind::Choice(words) => Shape::Choice(words),
            _ => Shape::Text,
        }
    }

    /// Returns the number of elements of the datatype.
    pub fn count(self) -> usize {
        match self {
            Shape::Text => TEXT_MAX,
            _ => 1,
        }
    }
}

/// Value that a tool reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Value of a flag or choice variable.
    Int(i32),
    /// Value of a text variable.
    Text(String),
}

fn all() -> impl Iterator<Item = &'static Variable> {
    VARIABLES.iter().filter(|variable| !variable.internal)
}

/// Returns the number of variables.
pub fn count() -> usize {
    all().count()
}

/// Returns the variable of number `index`, and its shape. Errors: `MPI_T_ERR_INVALID_INDEX`.
pub fn find(index: i32) -> Result<(&'static Variable, Shape)> {
    super::check()?;
    let found = usize::try_from(index).ok();
    let found = found.and_then(|index| all().nth(index));
    let variable = found.ok_or_else(|| no_index("control variable", index))?;
    Ok((variable, Shape::of(variable)))
}

/// Returns the number of the variable `name`. Errors: `MPI_T_ERR_INVALID_NAME`.
pub fn index_of(name: &str) -> Result<usize> {
    super::check()?;
    let found = all().position(|variable| variable.name == name);
    found.ok_or_else(|| no_name("control variable", name))
}

/// Returns the name and words of an enumeration. The handle of an enumeration is computed from the number of the
/// variable. Errors: `MPI_T_ERR_INVALID_HANDLE`.
pub fn find_enum(handle: usize) -> Result<(&'static str, &'static [&'static str])> {
    super::check()?;
    let variable = handle.checked_sub(super::FIRST_HANDLE);
    match variable.and_then(|index| all().nth(index)) {
        Some(variable) => match Shape::of(variable) {
            Shape::Choice(words) => Ok((variable.name, words)),
            _ => Err(no_enum(handle)),
        },
        None => Err(no_enum(handle)),
    }
}

fn no_enum(handle: usize) -> Error {
    Error::new(MPI_T_ERR_INVALID_HANDLE, format!("no enumeration has the handle {handle:#x}"))
}

/// Returns the handle of a variable's enumeration, or `MPI_T_ENUM_NULL` if it has none.
pub fn enum_of(index: usize, shape: Shape) -> usize {
    match shape {
        Shape::Choice(_) => index + super::FIRST_HANDLE,
        _ => MPI_T_ENUM_NULL,
    }
}

/// `MPI_T_cvar_handle_alloc`. Returns the handle and the number of elements. Errors: `MPI_T_ERR_INVALID_INDEX`.
pub fn open(index: i32) -> Result<(usize, usize)> {
    let (_, shape) = find(index)?;
    Ok((enter()?.cvars.insert(index as usize), shape.count()))
}

/// `MPI_T_cvar_handle_free`. Errors: `MPI_T_ERR_INVALID_HANDLE`.
pub fn close(handle: usize) -> Result {
    let closed = enter()?.cvars.remove(handle);
    closed.map(drop).ok_or_else(|| no_handle(handle))
}

fn no_handle(handle: usize) -> Error {
    Error::new(MPI_T_ERR_INVALID_HANDLE, format!("no control variable has the handle {handle:#x}"))
}

/// Returns the variable of a handle, and its shape. Errors: `MPI_T_ERR_INVALID_HANDLE`.
pub fn behind(handle: usize) -> Result<(&'static Variable, Shape)> {
    let index = *enter()?.cvars.get(handle).ok_or_else(|| no_handle(handle))?;
    find(index as i32)
}

/// Returns the value of a variable. Errors: `MPI_T_ERR_INVALID_HANDLE`, or `MPI_T_ERR_INVALID` if a variable of the
/// environment is malformed.
pub fn read(handle: usize) -> Result<Content> {
    let (variable, shape) = behind(handle)?;
    let config = Config::from_env().map_err(|e| Error::new(MPI_T_ERR_INVALID, e.to_string()))?;
    Ok(content(config.setting(variable.key), shape))
}

fn content(setting: &Setting, shape: Shape) -> Content {
    match (&setting.value, shape) {
        (ConfigValue::Flag(on), Shape::Flag) => Content::Int(i32::from(*on)),
        (ConfigValue::Choice(index), Shape::Choice(_)) => Content::Int(*index as i32),
        _ => {
            let mut text = setting.text.clone();
            while text.len() >= TEXT_MAX {
                text.pop();
            }
            Content::Text(text)
        }
    }
}

/// Sets a variable for the following `MPI_Init`. Errors: `MPI_T_ERR_INVALID_HANDLE`. `MPI_T_ERR_CVAR_SET_NOT_NOW` or
/// `MPI_T_ERR_CVAR_SET_NEVER` after `MPI_Init`. `MPI_T_ERR_INVALID` for an invalid value.
pub fn write(handle: usize, content: Content) -> Result {
    let (variable, shape) = behind(handle)?;
    match process::phase() {
        ProcessPhase::Uninitialized => {}
        ProcessPhase::Running => {
            return Err(Error::new(
                MPI_T_ERR_CVAR_SET_NOT_NOW,
                "the variable can be set only before MPI_Init",
            ));
        }
        ProcessPhase::Finalized => {
            return Err(Error::new(MPI_T_ERR_CVAR_SET_NEVER, "MPI is finalized"));
        }
    }
    let text = match (content, shape) {
        (Content::Int(number), Shape::Choice(words)) => {
            let word = usize::try_from(number).ok().and_then(|n| words.get(n));
            let word = word.ok_or_else(|| {
                Error::new(MPI_T_ERR_INVALID, "the value is not a choice of the variable")
            })?;
            (*word).to_owned()
        }
        (Content::Int(number), _) => number.to_string(),
        (Content::Text(text), _) => text,
    };
    config::set(variable.key, &text).map_err(|e| Error::new(MPI_T_ERR_INVALID, e.to_string()))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn variables__are_those_for_people_with_their_shapes() {
        super::super::init(MPI_THREAD_MULTIPLE).unwrap();
        let wait = index_of("FASTPATH_WAIT").unwrap();
        let (variable, shape) = find(wait as i32).unwrap();
        assert_eq!(variable.name, "FASTPATH_WAIT");
        let words = find_enum(enum_of(wait, shape)).unwrap().1;
        assert_eq!(shape, Shape::Choice(words));
        assert_eq!(words[0], "auto");
        assert!(find(-1).is_err() && find(count() as i32).is_err());
        assert!(index_of("FASTPATH_INTERNAL_JOB").is_err());
        assert!(find_enum(MPI_T_ENUM_NULL).is_err());
        let (handle, elements) = open(wait as i32).unwrap();
        assert_eq!(elements, 1);
        assert!(matches!(read(handle).unwrap(), Content::Int(_)));
        assert!(write(handle, Content::Int(99)).is_err());
        close(handle).unwrap();
        assert!(close(handle).is_err() && read(handle).is_err());
        super::super::finalize().unwrap();
    }
}
