#![allow(unsafe_code)]
//! Finding the program before anything is started, so that a mistake is one clear line.

use crate::args::App;
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A program that cannot be started, with the exit code shells use for it.
#[derive(Debug)]
pub struct ProgramError {
    /// 126, 127, or 2 for a wrong folder.
    pub code: i32,
    /// What is wrong.
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

/// Checks the folder an app starts in.
///
/// # Errors
/// It is not there, no folder, or may not be entered.
pub fn check_wdir(app: &App) -> Result<(), ProgramError> {
    let Some(dir) = &app.wdir else { return Ok(()) };
    match std::fs::metadata(dir) {
        Err(e) => fail(2, format!("-wdir {}: {e}", dir.display())),
        Ok(m) if !m.is_dir() => fail(2, format!("-wdir {}: not a folder", dir.display())),
        Ok(_) if !may(dir, libc::X_OK) => fail(
            2,
            format!(
                "-wdir {}: it may not be entered (permissions)",
                dir.display()
            ),
        ),
        Ok(_) => Ok(()),
    }
}

/// The file to execute for an app: a name with a slash is taken from the folder it starts in,
/// any other is looked up in `path` (the ranks' PATH).
///
/// # Errors
/// 127 when there is none, 126 when it cannot be executed.
pub fn find_program(app: &App, path: Option<&OsStr>) -> Result<PathBuf, ProgramError> {
    let name = app.argv.first().map_or(OsStr::new(""), OsString::as_os_str);
    let from = |p: &Path| {
        app.wdir
            .as_ref()
            .map_or_else(|| p.to_path_buf(), |d| d.join(p))
    };
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
        let dir = if dir.is_empty() {
            Path::new(".")
        } else {
            Path::new(OsStr::from_bytes(dir))
        };
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
        Verdict::Good => format!("; there is one in the folder itself: ./{}", name.display()),
        _ => String::new(),
    };
    fail(
        127,
        format!("{}: no such program in PATH{hint}", name.display()),
    )
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
        Ok(m) if m.is_dir() => Verdict::Unusable("it is a folder".into()),
        Ok(_) if !may(at, libc::X_OK) => {
            Verdict::Unusable("it is not executable (permissions)".into())
        }
        Ok(_) => Verdict::Good,
    }
}

/// Whether there is a program that may be run.
pub fn is_program(at: &Path) -> bool {
    matches!(judge(at), Verdict::Good)
}

/// Whether the kernel does not say that a file may not be used so. Where a sandbox refuses the question, using it
/// tells.
fn may(path: &Path, mode: libc::c_int) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes().to_vec()) else {
        return false;
    };
    // SAFETY: the path is a C string.
    let answer = unsafe { libc::access(path.as_ptr(), mode) };
    let cause = std::io::Error::last_os_error().raw_os_error();
    answer == 0 || matches!(cause, Some(libc::EPERM | libc::ENOSYS))
}

/// What an exec that failed after all these checks has to say.
pub fn describe_exec_error(program: &Path, errno: i32) -> ProgramError {
    let cause = std::io::Error::from_raw_os_error(errno);
    let program = program.display();
    match errno {
        libc::ENOENT => ProgramError {
            code: 127,
            text: format!(
                "{program}: its interpreter is missing (the program named in its first line, or \
                 its dynamic loader)"
            ),
        },
        libc::ENOEXEC => ProgramError {
            code: 126,
            text: format!(
                "{program}: not a program of this machine, nor a script that begins with #!"
            ),
        },
        libc::E2BIG => ProgramError {
            code: 126,
            text: format!("{program}: arguments and environment are too long ({cause})"),
        },
        _ => ProgramError {
            code: 126,
            text: format!("{program}: {cause}"),
        },
    }
}

/// A C string; a zero byte inside, which no command line can hold, ends it.
pub fn c_string(text: &OsStr) -> CString {
    let bytes: Vec<u8> = text
        .as_bytes()
        .iter()
        .copied()
        .take_while(|&b| b != 0)
        .collect();
    CString::new(bytes).unwrap_or_default()
}

/// `NAME=VALUE` as a C string.
pub fn c_pair(name: &OsStr, value: &OsStr) -> CString {
    let mut text = name.as_bytes().to_vec();
    text.push(b'=');
    text.extend_from_slice(value.as_bytes());
    c_string(&OsString::from_vec(text))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn app(name: &str) -> App {
        App {
            ranks: 1,
            argv: vec![name.into()],
            ..App::default()
        }
    }

    #[test]
    fn program__is_found_in_path() {
        let path = OsStr::new("/nowhere:/bin");
        assert_eq!(
            find_program(&app("sh"), Some(path)).unwrap(),
            Path::new("/bin/sh")
        );
        assert_eq!(
            find_program(&app("/bin/sh"), None).unwrap(),
            Path::new("/bin/sh")
        );
    }

    #[test]
    fn program__missing_is_127_and_unusable_126() {
        let code = |name: &str| {
            find_program(&app(name), Some(OsStr::new("/bin")))
                .unwrap_err()
                .code
        };
        assert_eq!(code("no-such-program"), 127);
        assert_eq!(code("/no/such/program"), 127);
        assert_eq!(code("/etc"), 126);
        assert_eq!(code("/etc/passwd"), 126);
    }

    #[test]
    fn program__with_a_slash_starts_from_the_folder() {
        let mut a = app("./sh");
        a.wdir = Some("/bin".into());
        assert_eq!(find_program(&a, None).unwrap(), Path::new("/bin/./sh"));
        a.argv = vec!["sh".into()];
        let e = find_program(&a, Some(OsStr::new("/nowhere"))).unwrap_err();
        assert!(e.text.contains("./sh"), "{e}");
    }

    #[test]
    fn wdir__must_be_a_folder() {
        let mut a = app("sh");
        assert!(check_wdir(&a).is_ok());
        for dir in ["/no/such", "/etc/passwd"] {
            a.wdir = Some(dir.into());
            let e = check_wdir(&a).unwrap_err();
            assert_eq!(e.code, 2);
            assert!(e.text.contains(dir), "{e}");
        }
    }
}
