//! Version for the build scripts of the launcher and the toolbox. It includes the commit if the source is a repository.

use std::process::Command;

fn ask_git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Sets `BUILD_VERSION` for the crate that is built.
pub fn note_version() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../commit.rs");
    for path in ["HEAD", "logs/HEAD"] {
        if let Some(path) = ask_git(&["rev-parse", "--git-path", path]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let commit = ask_git(&["rev-parse", "--short=12", "HEAD"]);
    let commit = commit.map_or_else(String::new, |commit| format!(" ({commit})"));
    let version = env!("CARGO_PKG_VERSION");
    println!("cargo::rustc-env=BUILD_VERSION={version}{commit}");
}
