//! Compiles the measurement engine, and notes the commit that the toolbox is built from.

#[path = "../commit.rs"]
mod commit;

fn main() {
    commit::note_version();
    let engine = ["engine.c", "clock.c", "histogram.c", "options.c", "floor.c", "wire.c"];
    let engine = engine.map(|name| format!("program/{name}"));
    println!("cargo::rerun-if-changed=program");
    cc::Build::new().files(engine).std("gnu11").opt_level(2).compile("engine");
}
