//! `fastpath-abigen header`: prints `mpi.h`, or another product of the table.

use fastpath_abigen::fortran::{self, BufferForm};
use fastpath_abigen::{Table, asserts, declarations, header};
use std::io::Write;
use std::process::ExitCode;

const USAGE: &str = "\
usage: fastpath-abigen header            the C header
       fastpath-abigen extensions        the C header of the functions beyond the standard
       fastpath-abigen asserts           a C program that checks the header against the table
       fastpath-abigen declarations      the source of the Rust crate fastpath-mpi-sys
       fastpath-abigen mpif.h            the include file for Fortran
       fastpath-abigen mpifp_types.f90   the Fortran module that the two others use
       fastpath-abigen mpi.f90           the Fortran module mpi
       fastpath-abigen mpi_f08.f90       the Fortran module mpi_f08
                       --addresses       after each of these two: for compilers without assumed rank
       fastpath-abigen mpif-ext.h        the extensions of mpi-ext.h as a Fortran include file
       fastpath-abigen mpi_ext.f90       these extensions for module mpi
       fastpath-abigen mpi_f08_ext.f90   these extensions for module mpi_f08
       fastpath-abigen symbols           all exported names
       fastpath-abigen version";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "fastpath-abigen: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let table = Table::builtin().map_err(|e| e.to_string())?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["header"] => print(&header::emit_header(&table))?,
        ["extensions"] => {
            let extensions = Table::extensions().map_err(|e| e.to_string())?;
            print(&header::emit_extensions(&extensions))?;
        }
        ["asserts"] => print(&asserts::emit_program(&table))?,
        ["declarations"] => print(&declarations::emit_declarations(&table))?,
        ["mpif.h"] => print(&fortran::emit_include(&table))?,
        ["mpifp_types.f90"] => print(&fortran::emit_types(&table))?,
        [name @ ("mpi.f90" | "mpi_f08.f90"), ref options @ ..] => {
            let buffers = match options {
                [] => BufferForm::Descriptors,
                ["--addresses"] => BufferForm::Addresses,
                _ => return Err(USAGE.into()),
            };
            let emit = if name == "mpi.f90" { fortran::emit_mpi } else { fortran::emit_mpi_f08 };
            print(&emit(&table, buffers).map_err(|e| e.to_string())?)?;
        }
        ["mpif-ext.h"] => print(&fortran::emit_include_extensions())?,
        [name @ ("mpi_ext.f90" | "mpi_f08_ext.f90")] => {
            let all = Table::with_extensions().map_err(|e| e.to_string())?;
            let is_f08 = name == "mpi_f08_ext.f90";
            let emit = if is_f08 { fortran::emit_mpi_f08_ext } else { fortran::emit_mpi_ext };
            print(&emit(&all).map_err(|e| e.to_string())?)?;
        }
        ["symbols"] => print(&(table.symbols().join("\n") + "\n"))?,
        ["version"] => print(concat!(env!("CARGO_PKG_VERSION"), "\n"))?,
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|e| format!("standard output: {e}"))
}
