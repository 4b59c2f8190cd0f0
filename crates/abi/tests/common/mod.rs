//! Helpers for tests of the built library.
#![allow(dead_code)]

use fastpath_abigen::{Table, header};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

pub fn table() -> Table {
    Table::builtin().unwrap()
}

/// Returns the functions beyond the standard.
pub fn extensions() -> Table {
    Table::extensions().unwrap()
}

/// Returns the folder of `libmpi_abi.so`, built in the test's profile, because cargo builds no shared library for the
/// tests of its own package. The packages and features equal those of `cargo test --workspace`, so cargo reuses what
/// that command has built, and builds only this library.
pub fn library_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let exe = std::env::current_exe().unwrap();
        let folder = exe.ancestors().nth(2).unwrap();
        let profile = match folder.file_name().and_then(|name| name.to_str()).unwrap() {
            "debug" => "dev",
            name => name,
        };
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--workspace", "--lib", "--profile", profile])
            .args(["--features", "fastpath-transport/sim,fastpath-report/testing"])
            .args(["--target-dir".as_ref(), folder.parent().unwrap().as_os_str()])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "the library does not build");
        folder.to_path_buf()
    })
}

/// Makes a folder for a test, with `mpi.h` and the library under the name that programs load.
pub fn make_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("mpi.h"), header::emit_header(&table())).unwrap();
    for name in ["libmpi_abi.so", "libmpi_abi.so.1"] {
        std::os::unix::fs::symlink(library_folder().join("libmpi_abi.so"), folder.join(name))
            .unwrap();
    }
    folder
}

/// Runs a command in `folder`, and returns its output. The command must succeed without messages.
pub fn run(folder: &Path, program: &str, args: &[&str], env: &[(&str, &str)]) -> String {
    let output = Command::new(program)
        .args(args)
        .current_dir(folder)
        .env("LD_LIBRARY_PATH", folder)
        .envs(env.iter().copied())
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{program} {args:?}:\n{errors}");
    String::from_utf8(output.stdout).unwrap()
}

pub fn cc() -> String {
    std::env::var("CC").unwrap_or_else(|_| "cc".into())
}

pub fn cxx() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "c++".into())
}

/// Returns the path of a C source of the tests.
pub fn source(name: &str) -> String {
    format!("{}/tests/c/{name}", env!("CARGO_MANIFEST_DIR"))
}
