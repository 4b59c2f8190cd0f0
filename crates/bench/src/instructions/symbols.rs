//! Attribution of instructions to functions, including inlined ones, and to levels.

use std::collections::HashMap;
use std::path::Path;

use fastpath_report::record::FunctionShare;

use super::callgrind::Dump;

type Loader = addr2line::Loader;

/// Objects with counted instructions, and their debug information.
#[derive(Default)]
pub struct Symbols {
    loaders: HashMap<String, Option<Loader>>,
}

/// Name for the level of this tool's own instructions, if the tool is the counted program.
pub const PROGRAM: &str = "program";

/// Level of a source file of this project; None for other files.
fn level_of_file(file: &str) -> Option<&'static str> {
    let (_, rest) = file.rsplit_once("crates/")?;
    let (name, _) = rest.split_once('/')?;
    Some(match name {
        "abi" => "abi",
        "mpi" => "mpi",
        "protocol" => "protocol",
        "transport" => "transport",
        "base" | "job" | "segment" => "base",
        "bench" | "machine" | "report" | "toolbox" => PROGRAM,
        _ => "other",
    })
}

/// Whether a file has the generated entry points, which are in the build folder.
fn is_entry_point(file: &str) -> bool {
    file.contains("fastpath-abi-") && file.ends_with("exports.rs")
}

/// Returns the last two parts of a module path, without generic arguments.
fn short_name(name: &str) -> String {
    let mut flat = String::new();
    let mut depth = 0usize;
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            c if depth == 0 => flat.push(c),
            _ => {}
        }
    }
    let mut parts: Vec<&str> = flat.split("::").filter(|p| !p.is_empty()).collect();
    // Hash that the compiler appends to a mangled name.
    if parts.last().is_some_and(|p| p.len() == 17 && p.starts_with('h')) {
        parts.pop();
    }
    let from = parts.len().saturating_sub(2);
    let name = parts[from..].join("::");
    if name.is_empty() { flat } else { name }
}

/// Name of an instruction outside of this project: its function, or the file if callgrind knows only an address.
fn name_of_other(object: &str, known: &str) -> String {
    match known.starts_with("0x") {
        true => object.rsplit('/').next().unwrap_or(object).to_owned(),
        false => known.to_owned(),
    }
}

impl Symbols {
    fn loader(&mut self, object: &str) -> Option<&Loader> {
        let load = || Loader::new(Path::new(object)).ok();
        let found = self.loaders.entry(object.to_owned()).or_insert_with(load);
        found.as_ref()
    }

    /// Returns level and function of an instruction. Code inlined from the standard library counts for the function of
    /// this project that contains it.
    fn find(&mut self, object: &str, address: u64, known: &str) -> (String, String) {
        let other = || ("other".to_owned(), name_of_other(object, known));
        let Some(loader) = self.loader(object) else {
            return other();
        };
        let Ok(mut frames) = loader.find_frames(address) else {
            return other();
        };
        while let Ok(Some(frame)) = frames.next() {
            let file = frame.location.and_then(|l| l.file).unwrap_or("");
            let level = if is_entry_point(file) { Some("abi") } else { level_of_file(file) };
            let name = frame.function.as_ref().and_then(|f| f.demangle().ok());
            if let Some(level) = level {
                let name = name.map_or_else(|| known.to_owned(), |n| short_name(&n));
                return (level.to_owned(), name);
            }
        }
        other()
    }

    /// Instructions of a dump per call, by level and function, in descending order. `inside` selects counted objects.
    pub fn break_down(
        &mut self, dump: &Dump, calls: f64, inside: impl Fn(&str) -> bool,
    ) -> Vec<FunctionShare> {
        let mut sums: HashMap<(String, String), u64> = HashMap::new();
        for ((object, address), cost) in &dump.costs {
            if !inside(object) {
                continue;
            }
            let known = dump.functions.get(&(object.clone(), *address));
            let key = self.find(object, *address, known.map_or("", String::as_str));
            *sums.entry(key).or_default() += cost;
        }
        let mut parts: Vec<FunctionShare> = sums
            .into_iter()
            .map(|((level, function), cost)| FunctionShare {
                level,
                function,
                instructions: cost as f64 / calls,
            })
            .collect();
        parts.sort_by(|a, b| {
            let by_cost = b.instructions.total_cmp(&a.instructions);
            by_cost.then_with(|| a.function.cmp(&b.function))
        });
        parts
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn files__have_a_level() {
        assert_eq!(level_of_file("/x/crates/mpi/src/p2p.rs"), Some("mpi"));
        assert_eq!(level_of_file("crates/transport/src/shm/wire.rs"), Some("transport"));
        assert_eq!(level_of_file("crates/bench/src/levels.rs"), Some(PROGRAM));
        assert_eq!(level_of_file("crates/report/src/record.rs"), Some(PROGRAM));
        assert_eq!(level_of_file("/rustc/1/library/core/src/ptr/mod.rs"), None);
        assert!(is_entry_point("/t/build/fastpath-abi-60f7/out/exports.rs"));
    }

    #[test]
    fn names__are_short() {
        assert_eq!(short_name("fastpath_mpi::p2p::try_send"), "p2p::try_send");
        assert_eq!(
            short_name("fastpath_transport::shm::datapath::Tx::am_short::h0123456789abcdef"),
            "Tx::am_short"
        );
        assert_eq!(short_name("<a::B<c::D> as e::F>::run"), "run");
        assert_eq!(short_name("main"), "main");
    }

    #[test]
    fn functions_without_a_name__are_listed_as_their_library() {
        let found = |known| Symbols::default().find("/lib/libibverbs/librxe-rdmav34.so", 1, known);
        assert_eq!(found("0x3cc0").1, "librxe-rdmav34.so");
        assert_eq!(found("write").1, "write");
    }

    /// A library whose function `twice::outer` contains the inlined `twice::inlined`, in a file of the level `mpi`.
    const LIBRARY: &str = r#"
        #![no_std]
        #![allow(dead_code)]
        pub mod twice {
            #[inline(always)]
            fn inlined(x: u64) -> u64 {
                unsafe { core::ptr::read_volatile(&x) }.wrapping_mul(3)
            }
            #[inline(never)]
            pub extern "C" fn outer(x: u64) -> u64 {
                inlined(x) + 1
            }
        }
        #[used]
        static KEPT: extern "C" fn(u64) -> u64 = twice::outer;
        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo) -> ! {
            loop {}
        }
    "#;

    /// Compiles `LIBRARY` with full debug information, which the tests themselves lack.
    fn build_library(folder: &Path) -> String {
        let source = folder.join("crates/mpi/src/twice.rs");
        let library = folder.join("libtwice.so");
        std::fs::create_dir_all(source.parent().unwrap()).unwrap();
        std::fs::write(&source, LIBRARY).unwrap();
        let built = std::process::Command::new("rustc")
            .args(["-g", "-O", "-Cpanic=abort", "-Clink-arg=-nostdlib", "--crate-type=cdylib"])
            .arg("-o")
            .args([&library, &source])
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        library.to_str().unwrap().to_owned()
    }

    #[test]
    fn instructions__have_level_and_function_and_unknown_objects_are_other() {
        let folder = std::env::temp_dir().join(format!("fastpath-symbols-{}", std::process::id()));
        let library = build_library(&folder);
        let size = std::fs::metadata(&library).unwrap().len();
        let mut symbols = Symbols::default();
        let found: HashSet<_> = (0..size).map(|at| symbols.find(&library, at, "?")).collect();
        std::fs::remove_dir_all(folder).unwrap();
        for name in ["twice::outer", "twice::inlined"] {
            assert!(found.contains(&("mpi".to_owned(), name.to_owned())), "{name}: {found:?}");
        }
        assert_eq!(symbols.find("/proc/none", 1, "f"), ("other".into(), "f".into()));
    }
}
