//! The entry points of `libmpifort_abi`: what Fortran calls, in Rust, over the C functions.

use super::conversions::Steps;
use super::extensions::is_extension;
use super::ffi::{c_type, declare};
use super::interface::{ArgumentKind, interfaces};
use super::shim::{Shim, ident, is_buffer};
use crate::exports::AliasMethod;
use crate::model::Table;
use std::fmt::Write;

/// Version script that exports every name of the library.
pub const VERSION_SCRIPT: &str =
    "{ global: mpi_*; pmpi_*; MPI_*; PMPI_*; mpix_*; pmpix_*; MPIX_*; PMPIX_*; mpifp_*; };\n";

/// Generates the module of all entry points. It uses these modules of `fastpath-abifort`: `convert`, `ffi`,
/// `handwritten`, `library`, `refusal`, `section`, `special_addresses`, `text`.
///
/// # Errors
/// An invalid line of `table/fortran.txt`, or an argument for which no conversion is known.
pub fn emit_shims(table: &Table, names: AliasMethod) -> Result<String, String> {
    let all = interfaces(table).map_err(|e| e.to_string())?;
    let mut out = String::new();
    for (profile, prefix) in [("", ""), ("p", "P")] {
        let mut section = "";
        let mut aliases = Vec::new();
        for interface in &all {
            if interface.function.section != section {
                close_module(&mut out, &mut aliases, names);
                section = &interface.function.section;
                _ = writeln!(out, "pub mod {profile}{section} {{\nuse super::*;");
            }
            let shim = Shim { table, interface, profile, prefix };
            shim.emit(&mut out, &mut aliases)?;
        }
        close_module(&mut out, &mut aliases, names);
    }
    Ok(out)
}

/// A further name of an entry point.
struct Alias {
    name: String,
    of: String,
    params: Vec<(String, String)>,
    ret: String,
}

/// Aliases and entry points are in one module, so that both are in one object file.
fn close_module(out: &mut String, aliases: &mut Vec<Alias>, names: AliasMethod) {
    if aliases.is_empty() && (out.is_empty() || out.ends_with("}\n")) {
        return;
    }
    if names == AliasMethod::WeakAlias {
        out.push_str("core::arch::global_asm!(\n");
    }
    for Alias { name, of, params, ret } in aliases.drain(..) {
        match names {
            AliasMethod::WeakAlias => {
                _ = writeln!(
                    out,
                    "    \".weak {name}\", \".type {name}, @function\", \".set {name}, {of}\","
                );
            }
            AliasMethod::Jump => {
                let args: Vec<&str> = params.iter().map(|(name, _)| name.as_str()).collect();
                _ = writeln!(
                    out,
                    "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn {name}({}){ret} {{\n    \
                     unsafe {{ {of}({}) }}\n}}",
                    declare(&params),
                    args.join(", ")
                );
            }
        }
    }
    if names == AliasMethod::WeakAlias {
        out.push_str(");\n");
    }
    out.push_str("}\n");
}

impl Shim<'_> {
    fn emit(&self, out: &mut String, aliases: &mut Vec<Alias>) -> Result<(), String> {
        let base = self.base();
        let body = format!("{base}_");
        let params = self.params(false);
        let ret = self.ret();
        self.emit_body(&body, false, out)?;
        let mut names = vec![format!("{base}_f08_")];
        if !self.interface.is_large {
            names.extend([base.clone(), format!("{base}__"), base.to_uppercase()]);
        }
        if self.has(|a| a.kind == ArgumentKind::Base) {
            names.push(format!("{base}_cptr_"));
        }
        if self.has(|a| a.kind == ArgumentKind::Detached) {
            names.retain(|n| !n.ends_with("_f08_"));
            self.emit_body(&format!("{base}_f08_"), true, out)?;
        }
        for name in names {
            aliases.push(Alias {
                name,
                of: body.clone(),
                params: params.clone(),
                ret: ret.clone(),
            });
        }
        if self.has(is_buffer) {
            let sections = format!("{base}_f08ts_");
            self.emit_sections(&sections, &body, out);
            aliases.push(Alias {
                name: format!("{base}_fts_"),
                of: sections,
                params: self.params(true),
                ret,
            });
        }
        Ok(())
    }

    /// Writes the entry point that takes addresses.
    fn emit_body(&self, symbol: &str, is_f08: bool, out: &mut String) -> Result<(), String> {
        let function = &self.interface.function;
        let params = self.params(false);
        if is_extension(self.interface) {
            // A C library without the extension can be loaded too.
            let name = format!("{}{}", self.prefix, function.name);
            _ = writeln!(out, "core::arch::global_asm!(\".weak {name}\");");
        }
        self.open(symbol, &params, out);
        let call = format!("ffi::{}{}", self.prefix, function.name);
        if self.interface.is_handwritten {
            let args: Vec<&str> = params.iter().map(|(name, _)| name.as_str()).collect();
            let body = function.name.trim_start_matches("MPI_").to_lowercase();
            _ = writeln!(out, "    crate::handwritten::{body}({call}, {})\n}} }}", args.join(", "));
            return Ok(());
        }
        let mut steps = Steps::default();
        for (index, param) in function.params.iter().enumerate() {
            match self.interface.arguments.iter().find(|a| a.parameter == index) {
                Some(argument) => self.convert(argument, param, is_f08, &mut steps)?,
                None if c_type(self.table, param).starts_with('*') => {
                    steps.arguments.push("core::ptr::null_mut()".into());
                }
                None => steps.arguments.push("0".into()),
            }
        }
        if is_extension(self.interface) {
            let name = format!("{}{}", self.prefix, function.name);
            _ = writeln!(out, "    crate::library::require({call} as *const (), \"{name}\");");
        }
        if matches!(function.section.as_str(), "init" | "abi")
            || function.name == "MPI_Session_init"
        {
            out.push_str("    crate::library::set_up();\n");
        }
        if matches!(function.name.as_str(), "MPI_Init" | "MPI_Init_thread")
            || function.name == "MPI_Session_init"
        {
            steps.after.push_str("    if code_ == 0 { crate::library::finish_set_up(); }\n");
        }
        let Steps { before, arguments, after } = steps;
        let call = format!("{call}({})", arguments.join(", "));
        let text = match self.has_code() {
            true => format!(
                "{before}    let code_ = {call};\n{after}    convert::store_error(ierror, code_);\n"
            ),
            false if self.is_function() => format!("{before}    {call}\n"),
            false => format!("{before}    {call};\n"),
        };
        if !self.is_hot() {
            out.push_str(&text);
            out.push_str("} }\n");
            return Ok(());
        }
        // Over Fastpath's C library no handle needs a call, so that this way has no other.
        let args: Vec<&str> = params.iter().map(|(name, _)| name.as_str()).collect();
        let bottoms: Vec<String> = self
            .interface
            .arguments
            .iter()
            .filter(|a| matches!(a.kind, ArgumentKind::Choice(_)))
            .map(|a| format!(" || special_addresses::is_bottom({})", ident(a)))
            .collect();
        _ = writeln!(
            out,
            "    if !crate::library::is_ours(){} {{ return {symbol}other({}); }}\n{}}} }}",
            bottoms.concat(),
            args.join(", "),
            self.direct(&text)
        );
        _ = writeln!(
            out,
            "#[cold]\n#[inline(never)]\nunsafe fn {symbol}other({}) {{ unsafe {{\n{text}}} }}",
            declare(&params)
        );
        Ok(())
    }

    /// Statements over Fastpath's C library, for buffers other than MPI_BOTTOM.
    fn direct(&self, text: &str) -> String {
        let mut text = text.to_string();
        for kind in ["comm", "datatype", "message", "request", "session"] {
            text = text
                .replace(&format!("convert::{kind}_from"), "convert::our_handle")
                .replace(&format!("convert::{kind}_to"), "convert::our_integer");
        }
        for argument in &self.interface.arguments {
            let x = ident(argument);
            text = text.replace(&format!("special_addresses::buffer({x})"), &x);
        }
        text
    }

    /// Whether the entry point has a way of its own over Fastpath's C library: messages and their completion.
    fn is_hot(&self) -> bool {
        matches!(self.interface.function.section.as_str(), "p2p" | "request") && self.has_code()
    }
}
