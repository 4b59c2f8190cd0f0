//! Compiles the measurement engine.

fn main() {
    let engine = ["engine.c", "clock.c", "histogram.c", "options.c", "floor.c", "wire.c"];
    let engine = engine.map(|name| format!("program/{name}"));
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=program");
    cc::Build::new().files(engine).std("gnu11").opt_level(2).compile("engine");
}
