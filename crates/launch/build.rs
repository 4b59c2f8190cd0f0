//! Records the commit that the launcher is built from, and compiles the symbols for debuggers.

#[path = "../commit.rs"]
mod commit;

fn main() {
    commit::note_version();
    println!("cargo:rerun-if-changed=src/mpir.c");
    println!("cargo:rerun-if-changed=src/mpir.dynamic");
    // No optimization in any profile: `src/mpir.c` gives the reason.
    cc::Build::new().file("src/mpir.c").debug(true).opt_level(0).warnings(true).compile("mpir");
    // Dynamic symbols survive `strip`. The linker driver of Zig does not know the option; `packaging/tree.py` keeps the
    // other symbol table's entries.
    let linker = std::env::var("RUSTC_LINKER").unwrap_or_default();
    if !linker.contains("zig") {
        let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo:rustc-link-arg-bins=-Wl,--dynamic-list={folder}/src/mpir.dynamic");
    }
}
