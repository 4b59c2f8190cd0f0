//! Program of a command line, and the C strings it is started with.

use crate::args::App;
pub use fastpath_job::program::{ProgramError, check_folder};
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Checks the program's working directory.
///
/// # Errors
/// The working directory is missing, not a folder, or may not be entered.
pub fn check_wdir(app: &App) -> Result<(), ProgramError> {
    let folder = app.wdir.as_deref();
    folder.map_or(Ok(()), |folder| check_folder("-wdir", folder))
}

/// Finds the executable of a program. `path` is the ranks' PATH.
///
/// # Errors
/// Exit code 127 if the program is not found, 126 if it cannot be executed.
pub fn find_program(app: &App, path: Option<&OsStr>) -> Result<PathBuf, ProgramError> {
    let name = app.argv.first().map_or(OsStr::new(""), OsString::as_os_str);
    let found = fastpath_job::program::find_program(name, app.wdir.as_deref(), path);
    found.map_err(|mut error| {
        error.text.extend(advise(name, app.wdir.as_deref()));
        error
    })
}

/// Returns the remedy for a name that is probably a mistake: a number of ranks without `-n`, or a source file.
fn advise(name: &OsStr, folder: Option<&Path>) -> Option<String> {
    let shown = name.to_string_lossy();
    if !shown.is_empty() && shown.bytes().all(|b| b.is_ascii_digit()) {
        return Some(format!("; for {shown} ranks, pass -n {shown} before the program"));
    }
    let path = Path::new(name);
    if !folder.map_or_else(|| path.to_owned(), |folder| folder.join(path)).is_file() {
        return None;
    }
    let compiler = name_compiler(path)?;
    let program = path.with_extension("");
    Some(format!(
        "; the name is that of a source file: compile it with {compiler} -o {} {shown}",
        program.display()
    ))
}

/// Returns the compiler wrapper of a source file's language.
fn name_compiler(path: &Path) -> Option<&'static str> {
    match path.extension()?.to_str()? {
        "c" => Some("mpicc"),
        "cc" | "cpp" | "cxx" | "C" => Some("mpicxx"),
        "f" | "F" | "f90" | "F90" | "f03" | "F03" | "f08" | "F08" => Some("mpifort"),
        _ => None,
    }
}

/// Describes an exec that failed although the checks of this file passed.
pub fn describe_exec_error(program: &Path, errno: i32) -> ProgramError {
    let cause = std::io::Error::from_raw_os_error(errno);
    let program = program.display();
    match errno {
        libc::ENOENT => ProgramError {
            code: 127,
            text: format!(
                "{program}: the interpreter in its first line, or its dynamic loader, does not \
                 exist"
            ),
        },
        libc::ENOEXEC => ProgramError {
            code: 126,
            text: format!(
                "{program}: the file is neither a program for this machine nor a script that \
                 begins with #!"
            ),
        },
        libc::E2BIG => ProgramError {
            code: 126,
            text: format!("{program}: arguments and environment are too long ({cause})"),
        },
        _ => ProgramError { code: 126, text: format!("{program}: {cause}") },
    }
}

/// Converts to a C string. A zero byte, which no command line can hold, ends it.
pub fn c_string(text: &OsStr) -> CString {
    let bytes: Vec<u8> = text.as_bytes().iter().copied().take_while(|&b| b != 0).collect();
    CString::new(bytes).unwrap_or_default()
}

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
        App { ranks: 1, argv: vec![name.into()], ..App::default() }
    }

    #[test]
    fn program__with_a_slash_starts_from_the_folder() {
        let mut a = app("./sh");
        a.wdir = Some("/bin".into());
        assert_eq!(find_program(&a, None).unwrap(), Path::new("/bin/./sh"));
        a.argv = vec!["sh".into()];
        let e = find_program(&a, Some(OsStr::new("/proc/none"))).unwrap_err();
        assert!(e.text.contains("./sh"), "{e}");
    }

    #[test]
    fn advice__is_for_a_number_and_for_a_source_file() {
        let error =
            |name: &str| find_program(&app(name), Some(OsStr::new("/proc/none"))).unwrap_err().text;
        assert!(
            error("4").ends_with("; for 4 ranks, pass -n 4 before the program"),
            "{}",
            error("4")
        );
        let wanted = "; the name is that of a source file: compile it with mpicc -o";
        // The tests run in the folder of the crate.
        let end = |name: &str, program: &str| format!("{wanted} {program} {name}");
        assert!(error("./src/mpir.c").ends_with(&end("./src/mpir.c", "./src/mpir")));
        assert!(error("src/mpir.c").ends_with(&end("src/mpir.c", "src/mpir")));
        assert!(error("/proc/none/a.c").ends_with("(os error 2)"), "{}", error("/proc/none/a.c"));
        for (name, compiler) in [("a.c", "mpicc"), ("a.cpp", "mpicxx"), ("a.f90", "mpifort")] {
            assert_eq!(name_compiler(Path::new(name)), Some(compiler));
        }
        assert!(error("hello.py").ends_with("PATH has no program of this name"));
        assert!(advise(OsStr::new(""), None).is_none());
    }

    #[test]
    fn wdir__must_be_a_folder() {
        let mut a = app("sh");
        assert!(check_wdir(&a).is_ok());
        for dir in ["/proc/none", "/etc/passwd"] {
            a.wdir = Some(dir.into());
            let e = check_wdir(&a).unwrap_err();
            assert_eq!(e.code, 2);
            assert!(e.text.contains(dir), "{e}");
        }
    }
}
