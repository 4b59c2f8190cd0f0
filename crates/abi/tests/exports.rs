//! Dynamic symbols of the built library, compared with the table.
#![allow(non_snake_case)]

mod common;

use object::read::elf::{Dyn, ElfFile64, FileHeader};
use object::{Object, ObjectSymbol, SymbolFlags, elf};
use std::collections::BTreeMap;

struct Export {
    address: u64,
    binding: u8,
    kind: u8,
}

fn read_library() -> Vec<u8> {
    std::fs::read(common::library_folder().join("libmpi_abi.so")).unwrap()
}

fn read_exports() -> BTreeMap<String, Export> {
    let data = read_library();
    let file = ElfFile64::<object::Endianness>::parse(&*data).unwrap();
    file.dynamic_symbols()
        .filter(|s| s.is_definition())
        .map(|s| {
            let SymbolFlags::Elf { st_info, .. } = s.flags() else { panic!("not ELF") };
            let export = Export { address: s.address(), binding: st_info >> 4, kind: st_info & 15 };
            (s.name().unwrap().to_string(), export)
        })
        .collect()
}

/// Data for debuggers, beside the functions of the standard.
const DATA: [&str; 2] = ["MPIR_dll_name", "fastpath_queues"];

#[test]
fn exports__are_the_functions_of_the_standard_and_data_for_debuggers() {
    let mut exports = read_exports();
    for name in DATA {
        let export = exports.remove(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!((export.kind, export.binding), (elf::STT_OBJECT, elf::STB_GLOBAL), "{name}");
    }
    for extension in &common::extensions().functions {
        for name in [extension.name.clone(), format!("P{}", extension.name)] {
            let export = exports.remove(&name).unwrap_or_else(|| panic!("{name} is missing"));
            assert_eq!(export.kind, elf::STT_FUNC, "{name}");
        }
    }
    let names: Vec<&String> = exports.keys().collect();
    let table = common::table().symbols();
    let unknown: Vec<_> = names.iter().filter(|name| !table.contains(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?} are no functions of the standard");
    assert_eq!(names, table.iter().collect::<Vec<_>>());
    assert_eq!(names.len(), 1328);
    for (name, export) in &exports {
        assert_eq!(export.kind, elf::STT_FUNC, "{name}");
    }
}

/// `MPI_X` is a weak alias of `PMPI_X` if the linker allows weak aliases (see the build script).
#[test]
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn names__share_an_address() {
    let exports = read_exports();
    for function in &common::table().functions {
        let weak = &exports[&function.name];
        let strong = &exports[&format!("P{}", function.name)];
        assert_eq!(weak.address, strong.address, "{}", function.name);
        assert_eq!((weak.binding, strong.binding), (elf::STB_WEAK, elf::STB_GLOBAL));
    }
}

#[test]
fn library__calls_no_function_that_a_profiler_may_replace() {
    let data = read_library();
    let file = ElfFile64::<object::Endianness>::parse(&*data).unwrap();
    let symbols = file.dynamic_symbol_table().unwrap();
    let mut imports = 0;
    for (_, relocation) in file.dynamic_relocations().unwrap() {
        if let object::RelocationTarget::Symbol(index) = relocation.target() {
            let symbol = object::ObjectSymbolTable::symbol_by_index(&symbols, index).unwrap();
            let name = symbol.name().unwrap();
            assert!(!name.starts_with("MPI_"), "{name} is called from inside");
            imports += 1;
        }
    }
    assert!(imports > 0, "the library imports nothing: the test looks at the wrong place");
}

#[test]
fn library__is_known_to_the_loader_by_the_name_of_the_abi() {
    let data = read_library();
    let file = ElfFile64::<object::Endianness>::parse(&*data).unwrap();
    let endian = file.endian();
    let sections = file.elf_header().sections(endian, &*data).unwrap();
    let (entries, strings) = sections.dynamic(endian, &*data).unwrap().unwrap();
    let strings = sections.strings(endian, &*data, strings).unwrap();
    let texts = |tag: u32| -> Vec<String> {
        entries
            .iter()
            .filter(|e| e.tag32(endian) == Some(tag))
            .map(|e| String::from_utf8(e.string(endian, strings).unwrap().to_vec()).unwrap())
            .collect()
    };
    assert_eq!(texts(elf::DT_SONAME), ["libmpi_abi.so.1"]);
    for needed in texts(elf::DT_NEEDED) {
        let of_the_system =
            ["libc.so", "libgcc_s.so", "libm.so", "ld-linux", "libpthread", "libdl"];
        assert!(of_the_system.iter().any(|s| needed.starts_with(s)), "needs {needed}");
    }
}
