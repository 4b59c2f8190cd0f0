//! The exported entry points: for each function of the table `PMPI_X`, and `MPI_X` as a weak alias.

use crate::model::{CType, CTypeKind, Function, Param, Table};
use crate::scan::{Bodies, BodyParam, BodySignature, ChosenParam, Returns};
use crate::wiring::{Wiring, WiringLine};
use std::fmt::Write;

/// Method by which `MPI_X` becomes another name of `PMPI_X`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AliasMethod {
    /// A weak symbol with the same address. The linker must accept a second version script
    /// ([`VERSION_SCRIPT`]) beside the compiler's own, which lld does and GNU ld does not.
    WeakAlias,
    /// A function that jumps to the other: one instruction more, with every linker.
    Jump,
}

/// Version script that exports the aliases from the library.
pub const VERSION_SCRIPT: &str = "{ global: MPI_*; PMPI_*; MPIX_*; PMPIX_*; };\n";

/// Generates the source of the module with all exports. It uses these names of `fastpath-abi`: `entry`, `enter`,
/// `fail`, `clear`, `Scope`, `Status`, the constants and the C types.
///
/// # Errors
/// A line of the wiring names no body, or a body that its function cannot call, or a body has no line.
pub fn emit_exports(
    table: &Table, wiring: &Wiring, bodies: &Bodies, names: AliasMethod,
) -> Result<String, String> {
    let mut out = String::new();
    let mut section = "";
    let mut aliases = String::new();
    for function in &table.functions {
        if function.section != section {
            close_section(&mut out, &mut aliases);
            section = &function.section;
            _ = writeln!(out, "pub mod {section} {{\nuse super::*;");
        }
        emit_function(table, bodies, function, wiring.line(&function.name)?, &mut out)?;
        let name = &function.name;
        match names {
            AliasMethod::WeakAlias => {
                _ = writeln!(
                    aliases,
                    "    \".weak {name}\", \".type {name}, @function\", \".set {name}, P{name}\","
                );
            }
            AliasMethod::Jump => emit_jump(table, function, &mut out),
        }
    }
    close_section(&mut out, &mut aliases);
    wiring.check_unused(bodies)?;
    Ok(out)
}

fn close_section(out: &mut String, aliases: &mut String) {
    if !aliases.is_empty() {
        // Aliases and functions are in one module, so that both are in one object file.
        _ = writeln!(out, "core::arch::global_asm!(\n{aliases});");
        aliases.clear();
    }
    if !out.is_empty() {
        out.push_str("}\n");
    }
}

fn emit_function(
    table: &Table, bodies: &Bodies, function: &Function, line: &WiringLine, out: &mut String,
) -> Result<(), String> {
    let name = &function.name;
    let body = line.find(&line.body, bodies)?;
    let ret = rust_type(table, &function.ret, "");
    let params = rust_params(table, function);
    _ = writeln!(
        out,
        "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn P{name}({params}) -> {ret} {{"
    );
    if let Some(path) = &line.quick {
        let quick = line.find(path, bodies)?;
        let all = function.params.iter().collect();
        let args = match quick.takes_process {
            true => Err("takes a &Process, which the call of a quick body does not pass".into()),
            false => list_arguments(table, all, quick),
        };
        let args = args.map_err(|e| line.misfit(path, quick, &e))?;
        emit_quick(function, path, &args, out);
        _ = writeln!(out, "#[cold]\n#[inline(never)]\nunsafe fn slow({params}) -> {ret} {{");
    }
    emit_call(table, function, &line.body, body, &line.words, out)
        .map_err(|e| line.misfit(&line.body, body, &e))?;
    out.push_str(if line.quick.is_some() { "}\n}\n" } else { "}\n" });
    Ok(())
}

impl WiringLine {
    /// Returns the error text for a body that its function cannot call.
    fn misfit(&self, path: &str, body: &BodySignature, cause: &str) -> String {
        format!(
            "{}: {path} ({}) {cause}: correct the line or the signature of the body",
            self.place, body.place
        )
    }
}

/// Writes the call of the quick body, and the jump to the body for everything else.
fn emit_quick(function: &Function, path: &str, args: &[String], out: &mut String) {
    let names: Vec<String> = function.params.iter().map(|p| format!("r#{}", p.name)).collect();
    _ = writeln!(
        out,
        "    if unsafe {{ entry::{path}({}) }} {{ return 0; }}\n    return unsafe {{ slow({}) }};",
        args.join(", "),
        names.join(", ")
    );
}

/// Writes the argument whose value depends on the words of the line, or on whether the function is a large-count form.
fn emit_choice(
    table: &Table, function: &Function, choice: ChosenParam, words: &[String],
) -> Result<String, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let find = |name: &str| function.params.iter().find(|p| p.name == name);
    let place = |word: &str| match word {
        "individual" | "shared" | "ordered" => find("offset").is_none(),
        "at" => find("offset").is_some() || choice == ChosenParam::SplitKind,
        _ => false,
    };
    Ok(match (choice, &words[..]) {
        (ChosenParam::Form, ["blocking"]) if find("request").is_none() => {
            "entry::Form::Blocking".into()
        }
        (ChosenParam::Form, ["nonblocking"])
            if find("request").is_some() && find("info").is_none() =>
        {
            "entry::Form::Nonblocking(r#request)".into()
        }
        (ChosenParam::Form, ["persistent"])
            if find("request").is_some() && find("info").is_some() =>
        {
            "entry::Form::Persistent(r#request)".into()
        }
        (ChosenParam::Form, _) => {
            return Err(
                "takes a `Form`: add one of these words to the line: blocking (no request), \
                        nonblocking (a request), persistent (info and a request)"
                    .into(),
            );
        }
        (ChosenParam::Width, []) if function.large_of.is_some() => "entry::Width::Large".into(),
        (ChosenParam::Width, []) => "entry::Width::Small".into(),
        (ChosenParam::Width, _) => {
            return Err("takes a `Width`, which needs no further word in the line".into());
        }
        (ChosenParam::SplitKind, [kind @ ("read" | "write"), at])
            if place(at) && *at != "shared" =>
        {
            let kind = if *kind == "read" { "Read" } else { "Write" };
            let at = match *at {
                "at" => "AtAll",
                "ordered" => "Ordered",
                _ => "All",
            };
            format!("entry::SplitKind::{kind}{at}")
        }
        (ChosenParam::SplitKind, _) => {
            return Err(
                "takes a `SplitKind`: add two words to the line: read or write, and individual, \
                        at or ordered"
                    .into(),
            );
        }
        (ChosenParam::Access, [kind @ ("read" | "write"), at, collective @ ..])
            if place(at) && matches!(collective, [] | ["collective"]) =>
        {
            let count = find("count").map(|p| argument(table, p)).unwrap_or_default();
            let at = match *at {
                "at" => "At(r#offset)",
                "shared" => "Shared",
                "ordered" => "Ordered",
                _ => "Individual",
            };
            format!(
                "entry::Access {{ writes: {}, place: entry::FilePlace::{at}, collective: {}, \
                 buf: r#buf as *mut u8, count: {count}, datatype: r#datatype }}",
                *kind == "write",
                !collective.is_empty()
            )
        }
        (ChosenParam::Access, _) => {
            return Err("takes an `Access`: add words to the line: read or write; at (with an \
                        offset), individual, shared or ordered (without an offset); collective \
                        for a collective function"
                .into());
        }
    })
}

/// Returns whether the C argument `name` is part of the parameter that `choice` selects, or is not passed with it.
fn is_chosen(choice: Option<ChosenParam>, name: &str) -> bool {
    match choice {
        Some(ChosenParam::Form) => ["info", "request"].contains(&name),
        Some(ChosenParam::Access) => ["offset", "buf", "count", "datatype"].contains(&name),
        // The call that began the split access has already received `buf`.
        Some(ChosenParam::SplitKind) => name == "buf",
        Some(ChosenParam::Width) | None => false,
    }
}

fn emit_call(
    table: &Table, function: &Function, path: &str, body: &BodySignature, words: &[String],
    out: &mut String,
) -> Result<(), String> {
    let name = &function.name;
    let mut args: Vec<String> = Vec::new();
    if body.takes_process {
        args.push("&process".into());
    }
    match body.choice {
        Some(choice) => args.push(emit_choice(table, function, choice, words)?),
        None if !words.is_empty() => {
            return Err(format!(
                "has no parameter for the words `{}` of the line",
                words.join(" ")
            ));
        }
        None => {}
    }
    let mut passed: Vec<&Param> = function.params.iter().collect();
    // The last C argument is the pointer through which the result of the body is stored.
    let result = match body.returns {
        Returns::Value => Some(passed.pop().ok_or("returns a value, for which C has no argument")?),
        Returns::Code | Returns::Done => None,
    };
    passed.retain(|p| !is_chosen(body.choice, &p.name));
    args.extend(list_arguments(table, passed, body)?);
    if body.choice == Some(ChosenParam::SplitKind) {
        out.push_str("    _ = r#buf;\n");
    }
    let mut call = format!("unsafe {{ entry::{path}({}) }}", args.join(", "));
    if body.choice == Some(ChosenParam::Form) && function.params.iter().any(|p| p.name == "info") {
        // The function recognises no hint, but its argument must be the handle of an info object.
        call = format!("entry::check_info(&process, r#info).and_then(|()| {call})");
    }
    if body.returns == Returns::Code {
        if body.takes_process {
            return Err("takes a &Process and returns no `Result`".into());
        }
        _ = writeln!(out, "    {call}");
        return Ok(());
    }
    if rust_type(table, &function.ret, "") != "c_int" {
        return Err("returns a `Result`, but the function has no error code".into());
    }
    let call = match result {
        None => call,
        Some(result) => format!("unsafe {{ entry::give(r#{}, || {call}) }}", result.name),
    };
    let clear = clear_results(table, function);
    let fail = |process: &str| match is_tool(function) {
        true => "error.code()".to_string(),
        false if clear.is_empty() => format!("fail({process}, scope, \"{name}\", error)"),
        false => format!("{{ {clear}fail({process}, scope, \"{name}\", error) }}"),
    };
    if !is_tool(function) {
        _ = writeln!(out, "    let scope = {};", scope(function));
    }
    let mut process = "None";
    if body.takes_process {
        let anytime = function.anytime;
        _ = writeln!(out, "    let process = match enter(\"{name}\", {anytime}) {{");
        _ = writeln!(out, "        Ok(process) => process,");
        _ = writeln!(out, "        Err(error) => return {},\n    }};", fail("None"));
        process = "Some(&*process)";
    }
    _ = writeln!(out, "    match {call} {{\n        Ok(()) => 0,");
    _ = writeln!(out, "        Err(error) => {},\n    }}", fail(process));
    Ok(())
}

/// Returns the expression for each parameter of a body. This is the next argument of C, or a struct whose fields have
/// the names of C arguments.
fn list_arguments(
    table: &Table, mut passed: Vec<&Param>, body: &BodySignature,
) -> Result<Vec<String>, String> {
    let mut args = Vec::new();
    for param in &body.params {
        if !param.fields.is_empty() {
            args.push(emit_struct(table, &mut passed, param)?);
            continue;
        }
        let Some(next) = passed.first() else {
            return Err(format!("takes `{}`, for which C has no argument left", param.name));
        };
        let given = given_type(table, next);
        if !fits(&param.ctype, &given) {
            return Err(format!(
                "takes `{}: {}` where C has `{}: {given}`",
                param.name, param.ctype, next.name
            ));
        }
        args.push(argument(table, next));
        passed.remove(0);
    }
    match passed.first() {
        None => Ok(args),
        Some(left) => Err(format!("takes no `{}`", left.name)),
    }
}

/// Writes a struct literal of the arguments, each by the name of its field.
fn emit_struct(
    table: &Table, passed: &mut Vec<&Param>, param: &BodyParam,
) -> Result<String, String> {
    let mut fields = Vec::new();
    for name in &param.fields {
        let Some(at) = passed.iter().position(|p| p.name == *name) else {
            return Err(format!("takes a `{}`, and C has no `{name}` for it", param.ctype));
        };
        fields.push(format!("{name}: {}", argument(table, passed.remove(at))));
    }
    Ok(format!("entry::arguments::{} {{ {} }}", param.ctype, fields.join(", ")))
}

/// Returns whether an argument has the type of a parameter. A type parameter, `_`, stands for every integer.
fn fits(ctype: &str, given: &str) -> bool {
    // A pointer to writable memory also fits a parameter that is a pointer to readable memory.
    let given = match ctype.starts_with("*const ") {
        true => given.replacen("*mut ", "*const ", 1),
        false => given.into(),
    };
    match ctype.strip_suffix('_') {
        None => ctype == given,
        Some(pointer) => {
            let element = given.strip_prefix(pointer).unwrap_or_default();
            ["c_int", "i64", "isize"].contains(&element)
        }
    }
}

/// Returns whether a function is of the tool interface, which calls no error handler (MPI 5.0, section 15.3).
fn is_tool(function: &Function) -> bool {
    function.name.starts_with("MPI_T_")
}

/// Returns the statements that set the variables for new objects to null after a failed call.
fn clear_results(table: &Table, function: &Function) -> String {
    let mut statements = String::new();
    for param in &function.params {
        if let Some(null) = null_result(table, function, param) {
            _ = write!(statements, "unsafe {{ clear(r#{}, {null}) }}; ", param.name);
        }
    }
    statements
}

/// Returns the null value of the variable for a new handle or attribute key; `None` for other parameters.
fn null_result(table: &Table, function: &Function, param: &Param) -> Option<String> {
    let ctype = &param.ctype;
    let is_result = ctype.stars == 1
        && param.suffix.is_empty()
        && function.inout.as_ref() != Some(&param.name)
        && !is_tool(function);
    match table.kind(&ctype.base) {
        Some(CTypeKind::Handle) if is_result => Some(format!("{}_NULL", ctype.base.to_uppercase())),
        Some(CTypeKind::Int) if is_result && param.name.ends_with("keyval") => {
            Some("MPI_KEYVAL_INVALID".into())
        }
        _ => None,
    }
}

fn emit_jump(table: &Table, function: &Function, out: &mut String) {
    let name = &function.name;
    let args: Vec<String> = function.params.iter().map(|p| format!("r#{}", p.name)).collect();
    _ = writeln!(
        out,
        "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn {name}({}) -> {} {{\n    unsafe {{ \
         P{name}({}) }}\n}}",
        rust_params(table, function),
        rust_type(table, &function.ret, ""),
        args.join(", ")
    );
}

/// Returns the expression for the object whose error handler gets an error of this call.
fn scope(function: &Function) -> String {
    if function.on_no_file {
        return "Scope::File(MPI_FILE_NULL)".into();
    }
    if let Some(name) = &function.scope
        && let Some(param) = function.params.iter().find(|p| p.name == *name)
        && let Some(kind) = scope_kind(&param.ctype.base)
    {
        return format!("Scope::{kind}(unsafe {{ read_handle(r#{name}) }})");
    }
    let by_value = |p: &&Param| p.ctype.stars == 0 && p.suffix.is_empty();
    let mut values = function.params.iter().filter(by_value);
    if let Some((kind, name)) = values.find_map(|p| Some((scope_kind(&p.ctype.base)?, &p.name))) {
        return format!("Scope::{kind}(r#{name})");
    }
    // A call that creates an object uses the error handler passed for that object.
    let has_handler = function.params.iter().any(|p| p.name == "errhandler");
    let made = function.params.last().filter(|p| p.ctype.stars == 1);
    match made.and_then(|p| scope_kind(&p.ctype.base)) {
        Some(kind) if has_handler => format!("Scope::New(HandlerKind::{kind}, r#errhandler)"),
        _ => "Scope::None".into(),
    }
}

fn scope_kind(base: &str) -> Option<&'static str> {
    Some(match base {
        "MPI_Comm" => "Comm",
        "MPI_Win" => "Win",
        "MPI_File" => "File",
        "MPI_Session" => "Session",
        _ => return None,
    })
}

/// Returns whether a body gets a parameter as an `i64`: a count by value.
fn is_widened(table: &Table, param: &Param) -> bool {
    let by_value = param.ctype.stars == 0 && param.suffix.is_empty();
    let kind = table.kind(&param.ctype.base);
    param.poly && by_value && matches!(kind, Some(CTypeKind::Int | CTypeKind::Aint))
}

/// Returns the expression that is passed to a body for a C parameter.
fn argument(table: &Table, param: &Param) -> String {
    let name = &param.name;
    match (is_widened(table, param), table.kind(&param.ctype.base)) {
        (true, Some(CTypeKind::Int)) => format!("i64::from(r#{name})"),
        (true, _) => format!("r#{name} as i64"),
        (false, _) => format!("r#{name}"),
    }
}

fn given_type(table: &Table, param: &Param) -> String {
    match is_widened(table, param) {
        true => "i64".into(),
        false => rust_type(table, &param.ctype, &param.suffix),
    }
}

pub(crate) fn rust_params(table: &Table, function: &Function) -> String {
    let declare = |p: &Param| format!("r#{}: {}", p.name, rust_type(table, &p.ctype, &p.suffix));
    let params: Vec<String> = function.params.iter().map(declare).collect();
    params.join(", ")
}

/// Returns the Rust type of a parameter: `usize` for handles and callbacks, pointers to C types for pointers.
pub(crate) fn rust_type(table: &Table, ctype: &CType, suffix: &str) -> String {
    let kind = table.kind(&ctype.base);
    let scalar = match kind {
        Some(CTypeKind::Char) => "c_char",
        Some(CTypeKind::Double) => "f64",
        Some(CTypeKind::Aint) => "isize",
        Some(CTypeKind::Long) => "i64",
        Some(CTypeKind::Status) => "Status",
        Some(CTypeKind::Handle) => "usize",
        // A callback is already a pointer, with or without a star in C.
        Some(CTypeKind::Callback) => return "usize".into(),
        Some(CTypeKind::Void) => "c_void",
        Some(CTypeKind::Int) | None => "c_int",
    };
    add_pointers(scalar, ctype, suffix)
}

/// Returns the Rust type of a C type whose base is `scalar` in Rust. `suffix` is the text after a parameter's name.
pub(crate) fn add_pointers(scalar: &str, ctype: &CType, suffix: &str) -> String {
    let (element, depth) = match suffix {
        "" => (scalar.to_string(), ctype.stars),
        "[][3]" => (format!("[{scalar}; 3]"), ctype.stars + 1),
        _ => (scalar.to_string(), ctype.stars + 1),
    };
    // `const` in C belongs to the innermost type.
    let innermost = if ctype.constant { "*const " } else { "*mut " };
    match depth {
        0 => element,
        _ => format!("{}{innermost}{element}", "*mut ".repeat(depth - 1)),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const STRUCTS: &str = "pub struct SendArguments { buf: *const c_void, count: i64, datatype: usize, dest: c_int, \
                           tag: c_int, comm: usize }";
    const SEND: &str = "pub fn send(b: *const c_void, n: i64, t: usize, d: c_int, a: c_int, c: usize) -> Result<()> {}";
    const DUP: &str = "pub fn dup(p: &Process, comm: usize, new: *mut usize) -> Result<()> {}";
    const READ: &str =
        "pub fn read(p: &Process, a: Access, fh: usize, s: *mut Status) -> Result<()> {}";
    const END: &str =
        "pub fn end(p: &Process, w: SplitKind, fh: usize, s: *mut Status) -> Result<()> {}";
    const BARRIER: &str = "pub fn barrier(p: &Process, form: Form, comm: usize) -> Result<()> {}";

    /// Returns the export of the function that `line` wires to a body in `source`, which stands for the file `m.rs`.
    fn try_emit(line: &str, source: &str) -> Result<String, String> {
        let mut table = Table::builtin().unwrap();
        table.functions.retain(|f| line.split(' ').next() == Some(&f.name));
        let wiring = Wiring::parse("wiring.txt", line, &table)?;
        let mut bodies = Bodies::default();
        bodies.read_source("arguments", "arguments.rs", STRUCTS)?;
        bodies.read_source("m", "m.rs", source)?;
        emit_exports(&table, &wiring, &bodies, AliasMethod::WeakAlias)
    }

    fn emit(line: &str, source: &str) -> String {
        let text = try_emit(line, source).unwrap();
        assert_eq!(text.matches('{').count(), text.matches('}').count());
        text
    }

    fn function(name: &str) -> (Table, Function) {
        let table = Table::builtin().unwrap();
        let function = table.function(name).unwrap().clone();
        (table, function)
    }

    #[test]
    fn body_without_process__is_called_straight() {
        let text = emit("MPI_Send m::send", SEND);
        assert!(!text.contains("enter("));
        assert!(text.contains(
            "entry::m::send(r#buf, i64::from(r#count), r#datatype, r#dest, r#tag, r#comm)"
        ));
        assert!(text.contains("fail(None, scope, \"MPI_Send\", error)"));
        assert!(text.contains("let scope = Scope::Comm(r#comm);"));
        let text = emit("MPI_Send_c m::send", SEND);
        assert!(text.contains("entry::m::send(r#buf, r#count,") && text.contains("r#count: i64"));
        let text = emit("MPI_Win_toint m::to_int", "pub fn to_int(handle: usize) -> c_int {}");
        assert!(text.contains("    unsafe { entry::m::to_int(r#win) }\n}"), "{text}");
    }

    #[test]
    fn body_with_process__is_entered() {
        let text = emit("MPI_Comm_dup m::dup", DUP);
        assert!(text.contains("enter(\"MPI_Comm_dup\", false)"));
        assert!(text.contains("entry::m::dup(&process, r#comm, r#newcomm)"));
        let source = "pub fn create(p: &Process) -> Result<usize> {}";
        let text = emit("MPI_Info_create m::create", source);
        assert!(text.contains("enter(\"MPI_Info_create\", true)"));
        assert!(text.contains("entry::give(r#info, || unsafe { entry::m::create(&process) })"));
    }

    #[test]
    fn body_with_a_width__is_told_which_form_it_serves() {
        let source =
            "pub fn contiguous(p: &Process, w: Width, n: i64, t: usize) -> Result<usize> {}";
        for (name, width) in [("MPI_Type_contiguous", "Small"), ("MPI_Type_contiguous_c", "Large")]
        {
            let text = emit(&format!("{name} m::contiguous"), source);
            let given = format!("contiguous(&process, entry::Width::{width}, ");
            assert!(text.contains(&given), "{text}");
        }
    }

    #[test]
    fn body_with_a_bundle__is_given_the_struct_in_its_place() {
        let source = "pub fn issend(message: SendArguments, request: *mut usize) -> Result<()> {}";
        let text = emit("MPI_Issend m::issend", source);
        let given = "issend(entry::arguments::SendArguments { buf: r#buf, count: ";
        assert!(text.contains(given), "{text}");
        assert!(text.contains("comm: r#comm }, r#request)"), "{text}");
    }

    #[test]
    fn quick_body__is_called_before_mpi_is_entered() {
        let source = "pub fn size<C: Count>(p: &Process, t: usize, size: *mut C) -> Result<()> {}\n\
                      pub fn size_quick<C: Count>(t: usize, size: *mut C) -> bool {}";
        for name in ["MPI_Type_size", "MPI_Type_size_c"] {
            let text = emit(&format!("{name} m::size quick m::size_quick"), source);
            let quick = text.find("entry::m::size_quick(r#datatype, r#size) } { return 0; }");
            let entered = text.find(&format!("enter(\"{name}\", false)"));
            assert!(quick.unwrap() < entered.unwrap(), "{text}");
        }
    }

    #[test]
    fn body_with_a_form__is_given_that_of_the_line() {
        for (line, call) in [
            ("MPI_Barrier m::barrier blocking", "entry::Form::Blocking, r#comm"),
            ("MPI_Ibarrier m::barrier nonblocking", "entry::Form::Nonblocking(r#request), r#comm"),
            (
                "MPI_Barrier_init m::barrier persistent",
                "entry::Form::Persistent(r#request), r#comm",
            ),
        ] {
            let text = emit(line, BARRIER);
            assert!(text.contains(&format!("barrier(&process, {call})")), "{text}");
            let checks_info = text.contains("entry::check_info(&process, r#info)");
            assert_eq!(checks_info, line.contains("_init"), "{text}");
        }
    }

    #[test]
    fn body_with_an_access__is_given_that_of_the_line() {
        for (line, access) in [
            (
                "MPI_File_read m::read read individual",
                "writes: false, place: entry::FilePlace::Individual, collective: false, ",
            ),
            (
                "MPI_File_write_at_all m::read write at collective",
                "writes: true, place: entry::FilePlace::At(r#offset), collective: true, ",
            ),
            ("MPI_File_read_shared m::read read shared", "FilePlace::Shared, collective: false, "),
            (
                "MPI_File_write_ordered_c m::read write ordered collective",
                "FilePlace::Ordered, collective: true, ",
            ),
        ] {
            let text = emit(line, READ);
            assert!(text.contains(access) && text.contains("}, r#fh, r#status)"), "{text}");
        }
        for (line, which) in [
            ("MPI_File_write_at_all_end m::end write at", "WriteAtAll"),
            ("MPI_File_read_all_end m::end read individual", "ReadAll"),
            ("MPI_File_write_ordered_end m::end write ordered", "WriteOrdered"),
        ] {
            let text = emit(line, END);
            assert!(
                text.contains(&format!("(&process, entry::SplitKind::{which}, r#fh, ")),
                "{text}"
            );
        }
    }

    #[test]
    fn wrong_line__is_an_error_with_function_cause_and_remedy() {
        let send = "pub fn sendd(x: c_int) -> Result<()> {}";
        let value = "pub fn time(p: &Process) -> Result<()> {}";
        let code = "pub fn dup(p: &Process, comm: usize, new: *mut usize) -> c_int {}";
        let sent = "pub fn probe(message: SendArguments) -> Result<()> {}";
        for (line, source, cause) in [
            ("MPI_Send m::send", send, "src/entry/m.rs has no `pub fn send`: correct the line, or"),
            (
                "MPI_Send m::sendd",
                send,
                "takes `x: c_int` where C has `buf: *const c_void`: correct",
            ),
            ("MPI_Comm_free m::dup", DUP, "takes `comm: usize` where C has `comm: *mut usize`: "),
            ("MPI_Ssend m::dup", DUP, "takes `comm: usize` where C has `buf: *const c_void`: "),
            ("MPI_Finalize m::dup", DUP, "takes `comm`, for which C has no argument left: correct"),
            ("MPI_Isend m::send", SEND, "takes no `request`: correct the line or the signature of"),
            (
                "MPI_Probe m::probe",
                sent,
                "takes a `SendArguments`, and C has no `buf` for it: correct the ",
            ),
            (
                "MPI_Comm_dup m::dup blocking",
                DUP,
                "has no parameter for the words `blocking` of the line: correct the line",
            ),
            ("MPI_Comm_dup m::dup", code, "takes a &Process and returns no `Result`: correct the"),
            (
                "MPI_Wtime m::time",
                value,
                "returns a `Result`, but the function has no error code: ",
            ),
            (
                "MPI_Comm_dup m::dup quick m::dup",
                DUP,
                "takes a &Process, which the call of a quick body does not pass",
            ),
            (
                "MPI_Barrier m::barrier",
                BARRIER,
                "takes a `Form`: add one of these words to the line: ",
            ),
            ("MPI_Ibarrier m::barrier blocking", BARRIER, "takes a `Form`: add one of these "),
            ("MPI_Ibarrier m::barrier persistent", BARRIER, "takes a `Form`: add one of these "),
            ("MPI_File_read m::read read at", READ, "takes an `Access`: add words to the line: "),
            ("MPI_File_read m::read individual", READ, "takes an `Access`: add words "),
            (
                "MPI_File_read_all_end m::end read shared",
                END,
                "takes a `SplitKind`: add two words ",
            ),
        ] {
            let error = try_emit(line, source).unwrap_err();
            let name = line.split(' ').next().unwrap();
            assert!(error.starts_with(&format!("wiring.txt:1: {name}: ")), "{error}");
            assert!(error.contains(cause), "{error}");
        }
        let error =
            try_emit("MPI_Send m::send", &format!("{SEND}\npub fn other() {{}}")).unwrap_err();
        assert!(error.starts_with("m.rs:2: no line of wiring.txt names m::other: "), "{error}");
    }

    #[test]
    fn scope__is_the_object_whose_handler_gets_an_error() {
        for (name, expected) in [
            ("MPI_Send", "Scope::Comm(r#comm)"),
            ("MPI_Comm_free", "Scope::Comm(unsafe { read_handle(r#comm) })"),
            ("MPI_File_sync", "Scope::File(r#fh)"),
            // Errors of calls without an open file are raised on `MPI_FILE_NULL`.
            ("MPI_File_open", "Scope::File(MPI_FILE_NULL)"),
            ("MPI_File_delete", "Scope::File(MPI_FILE_NULL)"),
            ("MPI_Register_datarep", "Scope::File(MPI_FILE_NULL)"),
            // A call that creates an object gets the handler passed for it.
            ("MPI_Comm_create_from_group", "Scope::New(HandlerKind::Comm, r#errhandler)"),
            ("MPI_Session_init", "Scope::New(HandlerKind::Session, r#errhandler)"),
            ("MPI_Comm_create_errhandler", "Scope::None"),
        ] {
            assert_eq!(scope(&function(name).1), expected, "{name}");
        }
    }

    #[test]
    fn failing_call__sets_what_it_returns_to_null() {
        let text = emit("MPI_Comm_dup m::dup", DUP);
        let clear = "unsafe { clear(r#newcomm, MPI_COMM_NULL) }; fail(";
        assert_eq!(text.matches(clear).count(), 2, "{text}");
        assert!(text.contains("Ok(()) => 0,"));
        let cleared = |name: &str| {
            let (table, function) = function(name);
            clear_results(&table, &function)
        };
        assert!(cleared("MPI_Win_create").contains("clear(r#win, MPI_WIN_NULL)"));
        assert!(cleared("MPI_Comm_create_keyval").contains("r#comm_keyval, MPI_KEYVAL_INVALID"));
        let text = cleared("MPI_Imrecv");
        assert!(text.contains("clear(r#request,") && !text.contains("clear(r#message,"));
    }

    #[test]
    fn handle_that_a_function_reads__is_left_alone() {
        let table = Table::builtin().unwrap();
        let reads: Vec<&str> =
            table.functions.iter().filter(|f| f.inout.is_some()).map(|f| &*f.name).collect();
        for function in &table.functions {
            let verb = function.name.trim_end_matches("_c").rsplit('_').next().unwrap();
            let takes = ["free", "commit", "disconnect", "close", "finalize"].contains(&verb);
            if takes && !clear_results(&table, function).is_empty() {
                panic!("{} must say `inout`", function.name);
            }
        }
        for name in ["MPI_Wait", "MPI_Test", "MPI_Start", "MPI_Cancel", "MPI_Mrecv", "MPI_Imrecv_c"]
        {
            assert!(reads.contains(&name), "{name}");
        }
    }

    #[test]
    fn tool_interface__calls_no_error_handler() {
        let source = "pub fn finalize(p: &Process) -> Result<()> {}";
        let text = emit("MPI_T_finalize m::finalize", source);
        assert_eq!(text.matches("error.code()").count(), 2);
        assert!(!text.contains("fail"));
    }

    #[test]
    fn types__are_those_of_the_contract() {
        let table = Table::builtin().unwrap();
        let types = |name: &str| rust_params(&table, table.function(name).unwrap());
        assert!(types("MPI_Alltoallv_c").contains("r#sdispls: *const isize"));
        assert!(types("MPI_Waitall").contains("r#array_of_statuses: *mut Status"));
        assert!(types("MPI_Group_range_incl").contains("r#ranges: *mut [c_int; 3]"));
        assert!(types("MPI_Comm_spawn").contains("r#argv: *mut *mut c_char"));
        assert!(types("MPI_Init").contains("r#argv: *mut *mut *mut c_char"));
        assert!(types("MPI_Op_create").contains("r#user_fn: usize"));
        assert!(types("MPI_File_seek").contains("r#offset: i64"));
        assert_eq!(types("MPI_Pcontrol"), "r#level: c_int");
    }
}
