//! The entry points of `libmpifort_abi`: what Fortran calls, in Rust, over the C functions.

use super::interface::{Argument, ArgumentKind, Array, IntegerKind, Intent, Interface, interfaces};
use crate::exports::AliasMethod;
use crate::model::{CTypeKind, Function, Param, Table};
use std::fmt::Write;

/// Version script that exports every name of the library.
pub const VERSION_SCRIPT: &str = "{ global: mpi_*; pmpi_*; MPI_*; PMPI_*; mpifp_*; };\n";

/// Generates the module of all entry points. It uses these modules of `fastpath-abifort`: `cells`, `convert`, `own`,
/// `section`, `text`.
///
/// # Errors
/// An invalid line of `table/fortran.txt`, or an argument for which no conversion is known.
pub fn emit_shims(table: &Table, names: AliasMethod) -> Result<String, String> {
    let all = interfaces(table).map_err(|e| e.to_string())?;
    let mut out = String::new();
    emit_ffi(table, &all, &mut out);
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
    if out.ends_with("}\n") && aliases.is_empty() {
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

fn declare(params: &[(String, String)]) -> String {
    let all: Vec<String> = params.iter().map(|(name, ctype)| format!("{name}: {ctype}")).collect();
    all.join(", ")
}

/// Writes the declarations of the C functions. A handle is a `usize`, a status and a callback are `c_void`.
fn emit_ffi(table: &Table, all: &[Interface], out: &mut String) {
    out.push_str("pub mod ffi {\nuse super::*;\nunsafe extern \"C\" {\n");
    let has_form =
        |f: &&Function| f.section == "handle" || all.iter().any(|i| i.function.name == f.name);
    for function in table.functions.iter().filter(has_form) {
        for prefix in ["", "P"] {
            // Conversions of handles are no calls of a program.
            if prefix.is_empty() && function.section == "handle" {
                continue;
            }
            let dots = if function.varargs { ", ..." } else { "" };
            _ = writeln!(
                out,
                "    pub fn {prefix}{}({}{dots}) -> {};",
                function.name,
                declare(&c_params(table, function)),
                c_return(table, function)
            );
        }
    }
    out.push_str("}\n");
    for Interface { function, .. } in all.iter().filter(|i| i.is_own) {
        let types: Vec<String> =
            c_params(table, function).into_iter().map(|(_, ctype)| ctype).collect();
        _ = writeln!(
            out,
            "pub type {}_fn = unsafe extern \"C\" fn({}) -> {};",
            function.name,
            types.join(", "),
            c_return(table, function)
        );
    }
    out.push_str("}\n");
}

fn c_params(table: &Table, function: &Function) -> Vec<(String, String)> {
    function.params.iter().map(|p| (format!("r#{}", p.name), c_type(table, p))).collect()
}

fn c_base(table: &Table, base: &str) -> &'static str {
    match table.kind(base) {
        Some(CTypeKind::Int) => "c_int",
        Some(CTypeKind::Aint | CTypeKind::Long) => "i64",
        Some(CTypeKind::Handle) => "usize",
        Some(CTypeKind::Char) => "u8",
        Some(CTypeKind::Double) => "f64",
        _ => "c_void",
    }
}

fn c_type(table: &Table, param: &Param) -> String {
    let base = c_base(table, &param.ctype.base);
    let stars = param.ctype.stars + usize::from(!param.suffix.is_empty());
    let is_callback = table.kind(&param.ctype.base) == Some(CTypeKind::Callback);
    if is_callback {
        return "*const c_void".into();
    }
    format!("{}{base}", "*mut ".repeat(stars))
}

fn c_return(table: &Table, function: &Function) -> &'static str {
    c_base(table, &function.ret.base)
}

/// One procedure as `MPI_X` or as `PMPI_X`.
struct Shim<'a> {
    table: &'a Table,
    interface: &'a Interface,
    profile: &'static str,
    prefix: &'static str,
}

/// Statements around the call of the C function.
#[derive(Default)]
struct Steps {
    before: String,
    arguments: Vec<String>,
    after: String,
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

    fn base(&self) -> String {
        format!("{}{}", self.profile, self.interface.function.name.to_lowercase())
    }

    fn has(&self, test: impl Fn(&Argument) -> bool) -> bool {
        self.interface.arguments.iter().any(test)
    }

    fn has_code(&self) -> bool {
        self.interface.function.ret.base == "int"
    }

    fn ret(&self) -> String {
        match self.has_code() {
            true => String::new(),
            false => format!(" -> {}", c_return(self.table, &self.interface.function)),
        }
    }

    /// Parameters as Fortran passes them. `has_descriptors`: buffers, and strings, are C descriptors.
    fn params(&self, has_descriptors: bool) -> Vec<(String, String)> {
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

    fn open(&self, symbol: &str, params: &[(String, String)], out: &mut String) {
        let ret = self.ret();
        _ = writeln!(
            out,
            "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn {symbol}({}){ret} {{ unsafe {{",
            declare(params)
        );
    }

    /// Writes the entry point that takes addresses.
    fn emit_body(&self, symbol: &str, is_f08: bool, out: &mut String) -> Result<(), String> {
        let function = &self.interface.function;
        let params = self.params(false);
        self.open(symbol, &params, out);
        let call = format!("ffi::{}{}", self.prefix, function.name);
        if self.interface.is_own {
            let args: Vec<&str> = params.iter().map(|(name, _)| name.as_str()).collect();
            let own = function.name.trim_start_matches("MPI_").to_lowercase();
            _ = writeln!(out, "    crate::own::{own}({call}, {})\n}} }}", args.join(", "));
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
            false => format!("{before}    {call}\n"),
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
            .map(|a| format!(" || cells::is_bottom({})", ident(a)))
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

    /// The same statements over Fastpath's C library, for buffers other than MPI_BOTTOM.
    fn direct(&self, text: &str) -> String {
        let mut text = text.to_string();
        for kind in ["comm", "datatype", "message", "request", "session"] {
            text = text
                .replace(&format!("convert::{kind}_from"), "convert::our_handle")
                .replace(&format!("convert::{kind}_to"), "convert::our_integer");
        }
        for argument in &self.interface.arguments {
            let x = ident(argument);
            text = text.replace(&format!("cells::buffer({x})"), &x);
        }
        text
    }

    /// Whether the entry point has a way of its own over Fastpath's C library: messages and their completion.
    fn is_hot(&self) -> bool {
        matches!(self.interface.function.section.as_str(), "p2p" | "request") && self.has_code()
    }

    fn convert(
        &self, argument: &Argument, param: &Param, is_f08: bool, steps: &mut Steps,
    ) -> Result<(), String> {
        let x = ident(argument);
        let is_pointer = param.ctype.stars > 0 || !param.suffix.is_empty();
        let local = format!("{x}_");
        let Steps { before, arguments, after } = steps;
        let is_output = argument.intent == Some(Intent::Out);
        match &argument.kind {
            ArgumentKind::Integer(_) if !is_pointer => arguments.push(format!("*{x}")),
            ArgumentKind::Integer(_) => arguments.push(match param.suffix.as_str() {
                "[][3]" => format!("{x}.cast()"),
                _ => x,
            }),
            ArgumentKind::Logical => match (&argument.array, is_output) {
                (None, false) => arguments.push(format!("*{x} & 1")),
                (None, true) => {
                    // A call that returns the error of an operation sets the result too.
                    _ = writeln!(before, "    let mut {local} = convert::UNSET;");
                    _ = writeln!(
                        after,
                        "    if {local} != convert::UNSET {{ *{x} = c_int::from({local} != 0); }}"
                    );
                    arguments.push(format!("&mut {local}"));
                }
                (Some(array), _) => {
                    let length = self.length(array)?;
                    _ = writeln!(before, "    let length_ = {length};");
                    let made = match is_output {
                        true => {
                            "vec![convert::UNSET; usize::try_from(length_).unwrap_or(0)]".into()
                        }
                        false => format!("convert::logicals({x}, length_)"),
                    };
                    _ = writeln!(before, "    let mut {local}: Vec<c_int> = {made};");
                    if is_output {
                        _ = writeln!(
                            after,
                            "    for (i, v) in {local}.iter().enumerate() {{ if *v != convert::UNSET \
                             {{ *{x}.add(i) = c_int::from(*v != 0); }} }}"
                        );
                    }
                    arguments.push(format!("{local}.as_mut_ptr()"));
                }
            },
            ArgumentKind::Index if argument.array.is_none() => {
                _ = writeln!(before, "    let mut {local} = convert::UNSET;");
                _ = writeln!(
                    after,
                    "    if {local} != convert::UNSET {{ *{x} = convert::index_from_one({local}); }}"
                );
                arguments.push(format!("&mut {local}"));
            }
            ArgumentKind::Index => {
                // Errors of single requests leave the others completed, so their indices count too.
                _ = writeln!(before, "    *r#outcount = 0;");
                _ = writeln!(after, "    convert::raise_indices({x}, *r#outcount);");
                arguments.push(x);
            }
            ArgumentKind::Handle(base) => {
                self.convert_handle(argument, base, is_pointer, steps)?;
            }
            ArgumentKind::Status if argument.array.is_some() => {
                arguments.push(format!("cells::statuses({x})"));
            }
            ArgumentKind::Status => arguments.push(format!("cells::status({x})")),
            ArgumentKind::Choice(_) if self.interface.function.section == "coll" => {
                arguments.push(format!("cells::collective_buffer({x})"));
            }
            ArgumentKind::Choice(_) => arguments.push(format!("cells::buffer({x})")),
            ArgumentKind::Location => arguments.push(format!("cells::location({x})")),
            ArgumentKind::Booleans | ArgumentKind::Base => arguments.push(x),
            ArgumentKind::Detached => {
                _ = writeln!(before, "    let mut {local}: *mut c_void = core::ptr::null_mut();");
                if is_f08 {
                    _ = writeln!(
                        after,
                        "    if code_ == 0 {{ *{x}.cast() = cells::detached({local}); }}"
                    );
                }
                arguments.push(format!("(&raw mut {local}).cast()"));
            }
            ArgumentKind::Text { drops_leading, .. } if argument.intent == Some(Intent::In) => {
                _ = writeln!(
                    before,
                    "    let mut {local} = text::to_c({x}, {x}_length, {drops_leading});"
                );
                arguments.push(format!("{local}.as_mut_ptr()"));
            }
            ArgumentKind::Text { .. } => {
                let most = match self.has(|a| a.name == "valuelen" && a.intent == Some(Intent::In))
                {
                    true => "usize::try_from(*r#valuelen).unwrap_or(0)",
                    false => "text::LONGEST",
                };
                _ = writeln!(before, "    let mut {local} = text::OutText::new({most});");
                let test = match self.has(|a| a.name == "flag") {
                    true => "code_ == 0 && r#flag_ != 0",
                    false => "code_ == 0",
                };
                _ = writeln!(after, "    if {test} {{ {local}.store({x}, {x}_length); }}");
                arguments.push(format!("{local}.address()"));
            }
            ArgumentKind::Weights => arguments.push(format!("cells::weights({x})")),
            ArgumentKind::ErrorCodes => arguments.push(format!("cells::error_codes({x})")),
            ArgumentKind::State(_) | ArgumentKind::Attribute(_) | ArgumentKind::Procedure(_) => {
                return Err(format!(
                    "{}: {} needs an entry point by hand: add `own` to table/fortran.txt",
                    self.interface.function.name, argument.name
                ));
            }
        }
        Ok(())
    }

    fn convert_handle(
        &self, argument: &Argument, base: &str, is_pointer: bool, steps: &mut Steps,
    ) -> Result<(), String> {
        let Steps { before, arguments, after } = steps;
        let (x, kind) = (ident(argument), base.trim_start_matches("MPI_").to_lowercase());
        let local = format!("{x}_");
        let (from, to) = (format!("convert::{kind}_from"), format!("convert::{kind}_to"));
        match (&argument.array, argument.intent) {
            (None, _) if !is_pointer => arguments.push(format!("{from}(*{x})")),
            (None, Some(Intent::Out)) => {
                // A call that fails without a result leaves the variable alone. No handle is 0.
                _ = writeln!(before, "    let mut {local} = 0_usize;");
                _ = writeln!(after, "    if {local} != 0 {{ *{x} = {to}({local}); }}");
                arguments.push(format!("&mut {local}"));
            }
            (None, _) => {
                _ = writeln!(before, "    let mut {local} = {from}(*{x});");
                if argument.intent != Some(Intent::In) {
                    _ = writeln!(after, "    *{x} = {to}({local});");
                }
                arguments.push(format!("&mut {local}"));
            }
            (Some(_), _) if argument.name == "sendtypes" || argument.name == "recvtypes" => {
                let is_neighbor = self.interface.function.name.to_lowercase().contains("neighbor");
                let is_send = argument.name == "sendtypes";
                _ = writeln!(
                    before,
                    "    let mut {local} = crate::own::peer_types({x}, *r#comm, {is_neighbor}, \
                     {is_send}, r#sendbuf);"
                );
                if self.has(|a| a.name == "request") {
                    _ = writeln!(after, "    crate::own::keep_types({local}, r#request_);");
                    arguments.push(format!("{local}.as_mut_ptr()"));
                } else {
                    arguments.push(format!("{local}.as_mut_ptr()"));
                }
            }
            (Some(array), intent) => {
                let length = self.length(array)?;
                if intent == Some(Intent::Out) {
                    _ = writeln!(
                        before,
                        "    let mut {local} = vec![0_usize; usize::try_from({length}).unwrap_or(0)];"
                    );
                    _ = writeln!(
                        after,
                        "    for (i, v) in {local}.iter().enumerate() {{ if *v != 0 {{ *{x}.add(i) = \
                         {to}(*v); }} }}"
                    );
                    arguments.push(format!("{local}.as_mut_ptr()"));
                    return Ok(());
                }
                _ = writeln!(
                    before,
                    "    let mut {local} = convert::Handles::read({x}, ({length}) as c_int, {from});"
                );
                if intent == Some(Intent::InOut) {
                    _ = writeln!(after, "    {local}.write({x}, {to});");
                }
                arguments.push(format!("{local}.address()"));
            }
        }
        Ok(())
    }

    /// Expression for the length of an array.
    fn length(&self, array: &Array) -> Result<String, String> {
        if let Some(argument) = self.interface.arguments.iter().find(|a| a.name == array.extent) {
            return Ok(format!("*{}", ident(argument)));
        }
        match self.interface.function.name.as_str() {
            "MPI_Cart_sub" => Ok("crate::own::cartesian_dimensions(*r#comm)".into()),
            name => {
                Err(format!("{name}: an array of length `{}` cannot be converted", array.extent))
            }
        }
    }

    /// Writes the entry point that takes C descriptors.
    fn emit_sections(&self, symbol: &str, body: &str, out: &mut String) {
        let params = self.params(true);
        self.open(symbol, &params, out);
        let buffers: Vec<&Argument> =
            self.interface.arguments.iter().filter(|a| is_buffer(a)).collect();
        for argument in &buffers {
            let x = ident(argument);
            match argument.kind {
                ArgumentKind::Location => {
                    _ = writeln!(out, "    let {x}_ = section::address({x});");
                }
                _ => _ = writeln!(out, "    let {x}_ = section::plain({x});"),
            }
        }
        let choices: Vec<&&Argument> =
            buffers.iter().filter(|a| a.kind != ArgumentKind::Location).collect();
        // A plain buffer needs only its address: the compiler makes a jump of this call.
        let pattern: Vec<String> = choices.iter().map(|a| format!("Some({}_)", ident(a))).collect();
        let value: Vec<String> = choices.iter().map(|a| format!("{}_", ident(a))).collect();
        let plain = self.pass(|_| None);
        if choices.is_empty() {
            _ = writeln!(out, "    {body}({plain})\n}} }}");
            return;
        }
        _ = writeln!(
            out,
            "    if let ({},) = ({},) {{ return {body}({plain}); }}",
            pattern.join(", "),
            value.join(", ")
        );
        let names: Vec<&str> = params.iter().map(|(name, _)| name.as_str()).collect();
        _ = writeln!(out, "    sections({})\n}} }}", names.join(", "));
        // The way of other sections is a function of its own, so that the first has no frame.
        let at = out.rfind("    sections(").unwrap_or(out.len());
        out.replace_range(at..at + 13, &format!("    {symbol}sections("));
        _ = writeln!(
            out,
            "#[cold]\n#[inline(never)]\nunsafe fn {symbol}sections({}) {{ unsafe {{",
            declare(&params)
        );
        for argument in buffers.iter().filter(|a| a.kind == ArgumentKind::Location) {
            let x = ident(argument);
            _ = writeln!(out, "    let {x}_ = section::address({x});");
        }
        for argument in &choices {
            let x = ident(argument);
            _ = writeln!(out, "    let {x}_ = section::contiguous({x});");
        }
        _ = writeln!(
            out,
            "    if let ({},) = ({},) {{ return {body}({plain}); }}",
            pattern.join(", "),
            value.join(", ")
        );
        for argument in &choices {
            self.emit_section(argument, out);
        }
        let call = self.pass(|a| choices.iter().any(|c| c.name == a.name).then_some(()));
        _ = writeln!(out, "    {body}({call})\n}} }}");
    }

    /// Writes the statements that copy a section, or describe it by a datatype.
    fn emit_section(&self, argument: &Argument, out: &mut String) {
        let x = ident(argument);
        let (name, scope) = (&self.interface.function.name, self.scope());
        let refuse = format!(
            "return convert::store_error(ierror, convert::refuse(\"{name}\", \"{}\", {scope}, \
             refusal_))",
            argument.name
        );
        let made = match (&argument.kind, argument.is_asynchronous) {
            (_, false) => {
                let is_written = argument.intent != Some(Intent::In);
                format!("section::Copied::new({x}, {is_written})")
            }
            (ArgumentKind::Choice(Some(pair)), true) => {
                let ArgumentKind::Integer(kind) = self.named(&pair.count).kind else {
                    unreachable!("a count is an INTEGER");
                };
                let count = match kind {
                    IntegerKind::Default => format!("i64::from(*r#{})", pair.count),
                    _ => format!("*r#{}", pair.count),
                };
                format!("section::Typed::new({x}, {count}, *r#{})", pair.datatype)
            }
            (_, true) => "section::refuse_section".to_string() + &format!("({x})"),
        };
        _ = writeln!(
            out,
            "    let mut {x}_ = match {made} {{ Ok(made_) => made_, Err(refusal_) => {refuse} }};"
        );
    }

    fn named(&self, parameter: &str) -> &Argument {
        let index = self.interface.function.params.iter().position(|p| p.name == parameter);
        let find = |a: &&Argument| Some(a.parameter) == index;
        self.interface.arguments.iter().find(find).expect("a count or datatype is an argument")
    }

    /// Arguments for the entry point that takes addresses. `replaced`: the buffer was copied or described.
    fn pass(&self, replaced: impl Fn(&Argument) -> Option<()>) -> String {
        let arguments = &self.interface.arguments;
        let typed: Vec<(&Argument, &super::ElementCount)> = arguments
            .iter()
            .filter(|a| a.is_asynchronous && replaced(a).is_some())
            .filter_map(|a| match &a.kind {
                ArgumentKind::Choice(Some(pair)) => Some((a, pair)),
                _ => None,
            })
            .collect();
        let mut all = Vec::new();
        let mut lengths = Vec::new();
        for argument in arguments {
            let x = ident(argument);
            let parameter = &self.interface.function.params[argument.parameter].name;
            let by = |get: fn(&super::ElementCount) -> &str| {
                typed.iter().find(|(_, pair)| get(pair) == parameter).map(|(a, _)| ident(a))
            };
            let is_typed = typed.iter().any(|(a, _)| a.name == argument.name);
            all.push(match &argument.kind {
                ArgumentKind::Choice(_) if is_typed => format!("{x}_.address"),
                ArgumentKind::Choice(_) if replaced(argument).is_some() => {
                    format!("{x}_.address()")
                }
                ArgumentKind::Choice(_) | ArgumentKind::Location => format!("{x}_"),
                ArgumentKind::Text { .. } => {
                    lengths.push(format!("section::element_bytes({x})"));
                    format!("section::address({x}).cast()")
                }
                ArgumentKind::Integer(kind) => match by(|p| &p.count) {
                    Some(buffer) if *kind == IntegerKind::Default => {
                        format!("&mut {buffer}_.count")
                    }
                    Some(buffer) => format!("&mut {buffer}_.large_count"),
                    None => x,
                },
                ArgumentKind::Handle(_) => match by(|p| &p.datatype) {
                    Some(buffer) => format!("&mut {buffer}_.datatype"),
                    None => x,
                },
                _ => x,
            });
        }
        if self.has_code() {
            all.push("ierror".into());
        }
        all.extend(lengths);
        all.join(", ")
    }

    /// Object whose error handler gets an error about a buffer.
    fn scope(&self) -> String {
        for argument in &self.interface.arguments {
            if let ArgumentKind::Handle(base) = &argument.kind
                && argument.intent == Some(Intent::In)
                && let Some(kind) = match base.as_str() {
                    "MPI_Comm" => Some("Comm"),
                    "MPI_Win" => Some("Win"),
                    "MPI_File" => Some("File"),
                    _ => None,
                }
            {
                return format!("convert::Scope::{kind}(*{})", ident(argument));
            }
        }
        "convert::Scope::Comm(convert::COMM_SELF)".into()
    }
}

fn is_buffer(argument: &Argument) -> bool {
    matches!(argument.kind, ArgumentKind::Choice(_) | ArgumentKind::Location)
}

fn ident(argument: &Argument) -> String {
    format!("r#{}", argument.name)
}
