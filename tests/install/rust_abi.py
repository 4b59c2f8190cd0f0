#!/usr/bin/env python3
"""Compares the declarations of a Rust source with mpi.h, by a C compiler and a Rust compiler.

usage: rust_abi.py ABI.RS C FOLDER      (C: mpicc of the installation; writes to FOLDER)

The Rust text is translated to C without the table that it is made from. C accepts a second declaration of a function or
type only if it is equal, so that a program with both compiles if all types are equal. Constants and the layout of a
status are printed by a program in C and one in Rust.
"""

import os
import re
import subprocess
import sys

SCALARS = {
    "c_int": "int", "c_char": "char", "c_void": "void", "c_double": "double", "isize": "intptr_t", "i64": "int64_t",
}
FIELDS = ["MPI_SOURCE", "MPI_TAG", "MPI_ERROR", "MPI_internal"]


def c_type(rust, callbacks, declared=""):
    """Returns the declaration in C of a name with a Rust type."""
    if found := re.fullmatch(r"\*(const|mut) (.*)", rust):
        kind, target = found.groups()
        if array := re.fullmatch(r"\[(.*); (\d+)\]", target):
            return f"{c_type(array[1], callbacks)} (*{declared})[{array[2]}]"
        # `*const T` is `const T *` of a scalar; of a pointer, the pointer is constant.
        word = {"const": "const", "mut": ""}[kind]
        return c_type(target, callbacks, f"{word} *{declared}")
    star = "*" if rust in callbacks else ""
    return f"{SCALARS.get(rust, rust)} {star}{declared}".strip()


def c_params(text, callbacks):
    params = []
    for param in filter(None, re.split(r", ", text)):
        name, _, kind = param.partition(": ")
        params.append("..." if name == "..." else c_type(kind, callbacks, name))
    return ", ".join(params) or "void"


def read(path):
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"\n    +(?!pub|#|//|core|unsafe)", " ", file.read())
    return text.replace("( ", "(")


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"FAILED: {' '.join(words)}: {done.stderr}")
    return done.stdout


def compare(what, rust, c):
    different = sorted(set(rust) ^ set(c))
    if different or not rust:
        sys.exit(f"FAILED: {what}: only in Rust or only in C: {different[:10]}")
    print(f"ok: {len(set(rust))} {what} are equal in Rust and in C")


def main():
    source, compiler, folder = sys.argv[1:]
    text = read(source)
    callbacks = re.findall(
        r"^pub type (\w+) = Option<unsafe extern \"C\" fn\((.*)\)(?: -> (.*))?>;", text, re.MULTILINE)
    aliases = re.findall(r"^pub type (\w+) = ([\w ]+);", text, re.MULTILINE)
    handles = re.findall(r"^pub type (\w+) = \*mut (\w+);", text, re.MULTILINE)
    names = {name for name, _, _ in callbacks} | {name for name, of in aliases if of.startswith("MPI_")}
    functions = re.findall(r"^    pub fn (P?MPI_\w+)\((.*)\)(?: -> (.*))?;", text, re.MULTILINE)
    constants = re.findall(r"^pub const (MPI_\w+): (.*?) =", text, re.MULTILINE)
    calls = re.findall(r"^pub fn (MPI_\w+)\(\)", text, re.MULTILINE)

    c = ["#include <mpi.h>", "#include <stddef.h>", "#include <stdio.h>"]
    c += [f"typedef struct {target} *{name};" for name, target in handles]
    # An enumeration of C is an integer type of its own: its members and its size are compared below.
    enums = {name for name, of in aliases if of == "c_int"}
    c += [f"typedef {SCALARS.get(of, of)} {name};" for name, of in aliases if name not in enums]
    c += [f"typedef {c_type(result or 'c_void', names)} {name}({c_params(params, names)});"
          for name, params, result in callbacks]
    c += [f"{c_type(result or 'c_void', names)} {name}({c_params(params, names)});"
          for name, params, result in functions]
    # A constant has the type of Rust; integers are `int`, as written by hand in C.
    c += [f"_Static_assert(_Generic({name}, {c_type(kind, names)}: 1, default: 0), \"type of {name}\");"
          for name, kind in constants if kind not in enums]
    c.append("int main(void)\n{")
    c += [f'    printf("{name} %lld\\n", (long long)(intptr_t){name});' for name in [*dict(constants), *calls]]
    c += [f'    printf("sizeof {name} %zu\\n", sizeof({name}));' for name in ["MPI_Status", *enums, *dict(handles)]]
    c += [f'    printf("offset {name} %zu\\n", offsetof(MPI_Status, {name}));' for name in FIELDS]
    c.append("}")
    rust = ['#[path = "' + os.path.abspath(source) + '"]\nmod abi;\nuse abi::*;', "fn main() {"]
    for name, kind in constants:
        value = "0" if kind in names else f"{name} as isize"
        rust.append(f'    println!("{name} {{}}", {value});')
        if kind in names:
            rust.append(f"    assert!({name}.is_none());")
    rust += [f'    println!("{name} {{}}", {name}().unwrap() as usize);' for name in calls]
    rust += [f'    println!("sizeof {name} {{}}", size_of::<{name}>());'
             for name in ["MPI_Status", *enums, *dict(handles)]]
    rust += [f'    println!("offset {name} {{}}", std::mem::offset_of!(MPI_Status, {name}));' for name in FIELDS]
    rust.append("}")
    for name, lines in (("declarations.c", c), ("values.rs", rust)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    in_c, in_rust = os.path.join(folder, "declarations"), os.path.join(folder, "values")
    run(compiler, "-std=c11", "-DMPI_NO_DEPRECATION_WARNINGS", "-Werror", "-o", in_c, f"{in_c}.c")
    print(f"ok: C accepts {len(functions)} functions, {len(callbacks)} callback types and {len(constants)} types of "
          "constants of Rust beside its own")
    run("rustc", "--edition", "2024", "-A", "warnings", "-o", in_rust, f"{in_rust}.rs")
    compare("values and sizes", run(in_rust).splitlines(), run(in_c).splitlines())

    # Names: those of the header, as the preprocessor and the library have them.
    header = run(compiler, "-E", "-dM", f"{in_c}.c")
    macros = [name for name, value in re.findall(r"^#define (MPI_\w+) (.+)", header, re.MULTILINE)
              if re.fullmatch(r"\(?\(?.*\)?-?\d+\)?", value)]
    with open(run(compiler, "-showme:incdirs").strip().strip('"') + "/mpi.h", encoding="utf-8") as file:
        members = re.findall(r"^    (MPI_T_\w+) = \d+", file.read(), re.MULTILINE)
    compare("names of constants", [*dict(constants), *calls], [*macros, *members])
    library = run(compiler, "-showme:libdirs").strip().strip('"') + "/libmpi_abi.so"
    symbols = re.findall(r" [TW] (P?MPI_\w+)", run("nm", "-D", "--defined-only", library))
    compare("names of functions", [name for name, _, _ in functions], symbols)


main()
