#![allow(unsafe_code)]
//! Search for a program before it is started, so that a mistake is reported in one line.

use std::ffi::{CString, OsStr};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A program that cannot be started, with the exit code that shells use for it.
#[derive(Debug)]
pub struct ProgramError {
    /// Exit code: 127 if the program is not found, 126 if it cannot be executed, 2 for a wrong folder.
    pub code: i32,
    /// Text of the error.
    pub text: String,
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn fail<T>(code: i32, text: String) -> Result<T, ProgramError> {
    Err(ProgramError { code, text })
}

/// Checks the folder in which a program starts. `option` is the option that named the folder.
///
/// # Errors
/// The folder is missing, not a folder, or may not be entered.
pub fn check_folder(option: &str, folder: &Path) -> Result<(), ProgramError> {
    let refuse = |why: &str| fail(2, format!("{option} {}: {why}", folder.display()));
    match std::fs::metadata(folder) {
        Err(error) => refuse(&error.to_string()),
        Ok(found) if !found.is_dir() => refuse("this is not a folder"),
        Ok(_) if !may(folder, libc::X_OK) => {
            refuse("this user may not enter the folder (permissions)")
        }
        Ok(_) => Ok(()),
    }
}

/// Finds the file to execute. A name with a slash is relative to `folder`, in which the program starts (the present one
/// by default). Any other name is searched in `path`, a list like PATH.
///
/// # Errors
/// 127 if the program is not found, 126 if it cannot be executed.
pub fn find_program(
    name: &OsStr, folder: Option<&Path>, path: Option<&OsStr>,
) -> Result<PathBuf, ProgramError> {
    let from = |place: &Path| folder.map_or_else(|| place.to_path_buf(), |it| it.join(place));
    if name.as_bytes().contains(&b'/') {
        let at = from(Path::new(name));
        return match judge(&at) {
            Verdict::Good => Ok(at),
            Verdict::Missing(why) => fail(127, format!("{}: {why}", at.display())),
            Verdict::Unusable(why) => fail(126, format!("{}: {why}", at.display())),
        };
    }
    let default = OsStr::new("/usr/local/bin:/usr/bin:/bin");
    let mut unusable = None;
    for dir in path.unwrap_or(default).as_bytes().split(|&b| b == b':') {
        let dir = if dir.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(dir)) };
        let at = from(&dir.join(name));
        match judge(&at) {
            Verdict::Good => return Ok(at),
            Verdict::Unusable(why) => unusable = unusable.or(Some((at, why))),
            Verdict::Missing(_) => {}
        }
    }
    if let Some((at, why)) = unusable {
        return fail(126, format!("{}: {why}", at.display()));
    }
    let hint = match judge(&from(Path::new(name))) {
        Verdict::Good => {
            format!("; to run the program in the working directory, pass ./{}", name.display())
        }
        _ => String::new(),
    };
    fail(127, format!("{}: PATH has no program of this name{hint}", name.display()))
}

enum Verdict {
    Good,
    Missing(String),
    Unusable(String),
}

fn judge(at: &Path) -> Verdict {
    match std::fs::metadata(at) {
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => Verdict::Unusable(e.to_string()),
        Err(e) => Verdict::Missing(e.to_string()),
        Ok(m) if m.is_dir() => Verdict::Unusable("this is a folder, not a program".into()),
        Ok(_) if !may(at, libc::X_OK) => {
            Verdict::Unusable("the file is not executable for this user (permissions)".into())
        }
        Ok(_) => Verdict::Good,
    }
}

/// Returns whether there is an executable program at a path.
pub fn is_program(at: &Path) -> bool {
    matches!(judge(at), Verdict::Good)
}

/// Returns whether the kernel allows this use of a file; true if a sandbox refuses the check.
fn may(path: &Path, mode: libc::c_int) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes().to_vec()) else {
        return false;
    };
    // SAFETY: the path is a C string.
    let answer = unsafe { libc::access(path.as_ptr(), mode) };
    let cause = std::io::Error::last_os_error().raw_os_error();
    answer == 0 || matches!(cause, Some(libc::EPERM | libc::ENOSYS))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn find(name: &str, folder: Option<&str>, path: &str) -> Result<PathBuf, ProgramError> {
        let folder = folder.map(Path::new);
        find_program(OsStr::new(name), folder, Some(OsStr::new(path)))
    }

    #[test]
    fn program__is_found_in_path() {
        let found = find("sh", None, "/proc/none:/bin").unwrap();
        assert_eq!(found, Path::new("/bin/sh"));
        let found = find("/bin/sh", None, "").unwrap();
        assert_eq!(found, Path::new("/bin/sh"));
    }

    #[test]
    fn program__missing_is_127_and_unusable_126() {
        let code = |name: &str| find(name, None, "/bin").unwrap_err().code;
        assert_eq!(code("no-such-program"), 127);
        assert_eq!(code("/proc/none/program"), 127);
        assert_eq!(code("/etc"), 126);
        assert_eq!(code("/etc/passwd"), 126);
    }

    #[test]
    fn program__with_a_slash_starts_from_the_folder() {
        let found = find("./sh", Some("/bin"), "").unwrap();
        assert_eq!(found, Path::new("/bin/./sh"));
        let error = find("sh", Some("/bin"), "/proc/none").unwrap_err();
        assert!(error.text.contains("./sh"), "{error}");
    }
}
