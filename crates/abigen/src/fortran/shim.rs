//! One entry point of `libmpifort_abi`: names and parameters.

use super::ffi::{c_return, declare};
use super::interface::{Argument, ArgumentKind, IntegerKind, Interface};
use crate::model::Table;
use std::fmt::Write;

/// One procedure as `MPI_X` or as `PMPI_X`.
pub struct Shim<'a> {
    /// Table of the standard.
    pub table: &'a Table,
    /// The procedure.
    pub interface: &'a Interface,
    /// Start of the names: `p` for PMPI.
    pub profile: &'static str,
    /// Start of the name of the C function: `P` for PMPI.
    pub prefix: &'static str,
}

impl Shim<'_> {
    /// Name of the entry point without `_`.
    pub fn base(&self) -> String {
        format!("{}{}", self.profile, self.interface.function.name.to_lowercase())
    }

    /// Whether an argument passes the test.
    pub fn has(&self, test: impl Fn(&Argument) -> bool) -> bool {
        self.interface.arguments.iter().any(test)
    }

    /// Whether the procedure has `ierror`. MPI_Pcontrol, whose C function returns a code, has none.
    pub fn has_code(&self) -> bool {
        !self.is_function() && !self.interface.function.varargs
    }

    /// Whether the procedure is a function.
    pub fn is_function(&self) -> bool {
        self.interface.function.ret.base != "int"
    }

    /// Result in a Rust signature; empty for a subroutine.
    pub fn ret(&self) -> String {
        match self.is_function() {
            false => String::new(),
            true => format!(" -> {}", c_return(self.table, &self.interface.function)),
        }
    }

    /// Parameters as Fortran passes them. `has_descriptors`: buffers, and strings, are C descriptors.
    pub fn params(&self, has_descriptors: bool) -> Vec<(String, String)> {
        let mut all = Vec::new();
        let mut lengths = Vec::new();
        for argument in &self.interface.arguments {
            let name = ident(argument);
            let ctype = match &argument.kind {
                ArgumentKind::Choice(_) | ArgumentKind::Location | ArgumentKind::Text { .. }
                    if has_descriptors =>
                {
                    "*const Descriptor"
                }
                ArgumentKind::Text { .. } => {
                    lengths.push((format!("{name}_length"), "usize".to_string()));
                    "*mut u8"
                }
                ArgumentKind::Integer(IntegerKind::Default)
                | ArgumentKind::Logical
                | ArgumentKind::Index
                | ArgumentKind::Handle(_)
                | ArgumentKind::Weights
                | ArgumentKind::ErrorCodes
                | ArgumentKind::State(true)
                | ArgumentKind::Attribute(true) => "*mut c_int",
                ArgumentKind::Integer(_)
                | ArgumentKind::State(false)
                | ArgumentKind::Attribute(false) => "*mut i64",
                ArgumentKind::Procedure(_) => "*const c_void",
                _ => "*mut c_void",
            };
            all.push((name, ctype.to_string()));
        }
        if self.has_code() {
            all.push(("ierror".into(), "*mut c_int".into()));
        }
        all.extend(lengths);
        all
    }

    /// Writes the head of an entry point.
    pub fn open(&self, symbol: &str, params: &[(String, String)], out: &mut String) {
        let ret = self.ret();
        _ = writeln!(
            out,
            "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn {symbol}({}){ret} {{ unsafe {{",
            declare(params)
        );
    }
}

/// Whether an argument is a descriptor in module `mpi_f08`.
pub fn is_buffer(argument: &Argument) -> bool {
    matches!(argument.kind, ArgumentKind::Choice(_) | ArgumentKind::Location)
}

/// The argument's name in Rust.
pub fn ident(argument: &Argument) -> String {
    format!("r#{}", argument.name)
}
