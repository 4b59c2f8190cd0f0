//! The procedures as Fortran sees them: names, arguments, intents.

use super::rules::Rules;
use crate::model::{CTypeKind, Function, Param, Table};
use crate::parse::ParseError;

/// A Fortran procedure for one C function.
#[derive(Debug, Clone)]
pub struct Interface {
    /// The C function, such as `MPI_Send` or `MPI_Send_c`.
    pub function: Function,
    /// Arguments in order, without `ierror`.
    pub arguments: Vec<Argument>,
    /// Whether this is the large-count form, which only module `mpi_f08` has.
    pub is_large: bool,
    /// Whether the large-count form has a name of its own instead of the generic one.
    pub is_named: bool,
    /// Whether `mpi_f08` has no generic name for this form, because the small form has the same kinds.
    pub is_single: bool,
    /// Whether the entry point is written by hand.
    pub is_handwritten: bool,
}

/// An argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Name in Fortran.
    pub name: String,
    /// Position in the C function's parameters.
    pub parameter: usize,
    /// Meaning.
    pub kind: ArgumentKind,
    /// Intent in `mpi_f08`.
    pub intent: Option<Intent>,
    /// Shape, if the argument is an array.
    pub array: Option<Array>,
    /// Whether it is `ASYNCHRONOUS` in `mpi_f08`.
    pub is_asynchronous: bool,
    /// Whether MPI uses the buffer after the call has returned.
    pub is_used_later: bool,
}

/// Meaning of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgumentKind {
    /// INTEGER of this kind.
    Integer(IntegerKind),
    /// LOGICAL; an int in C.
    Logical,
    /// A LOGICAL that C gets as `void *`.
    Booleans,
    /// INTEGER that counts from 1, in C from 0.
    Index,
    /// Handle of this C type.
    Handle(String),
    /// Status.
    Status,
    /// Choice buffer. The count and datatype that describe all of it; `None`: no such pair.
    Choice(Option<ElementCount>),
    /// Choice buffer of which only the address is used.
    Location,
    /// TYPE(C_PTR), or an integer of address kind, that receives an address.
    Base,
    /// TYPE(C_PTR) in `mpi_f08`; a buffer that is not written otherwise.
    Detached,
    /// Extra state. `true`: INTEGER of MPI-1, otherwise an integer of address kind.
    State(bool),
    /// Value of an attribute. `true`: INTEGER of MPI-1, otherwise an integer of address kind.
    Attribute(bool),
    /// String. The length of an OUT string in `mpi_f08`: a constant or an argument; `None`: `(*)`.
    Text {
        /// Declared length.
        length: Option<String>,
        /// Whether leading blanks are dropped, as trailing ones are.
        drops_leading: bool,
    },
    /// Array of weights, perhaps MPI_UNWEIGHTED or MPI_WEIGHTS_EMPTY.
    Weights,
    /// Array of error codes, perhaps MPI_ERRCODES_IGNORE.
    ErrorCodes,
    /// Callback of this C type.
    Procedure(String),
}

/// Kind of an INTEGER.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntegerKind {
    /// Default kind, as wide as `int`.
    Default,
    /// MPI_ADDRESS_KIND
    Address,
    /// MPI_COUNT_KIND
    Count,
    /// MPI_OFFSET_KIND
    Offset,
}

/// Intent of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// INTENT(IN)
    In,
    /// INTENT(OUT)
    Out,
    /// INTENT(INOUT)
    InOut,
}

/// Shape of an array: `n`, `*` or `3,n`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// Text between the parentheses of the declaration.
    pub extent: String,
}

/// The arguments that describe a whole choice buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementCount {
    /// Name of the C parameter with the number of elements.
    pub count: String,
    /// Name of the C parameter with their datatype.
    pub datatype: String,
}

/// Names of a choice buffer, its count and its datatype.
const BUFFERS: [(&str, &str, &str); 7] = [
    ("buf", "count", "datatype"),
    ("buffer", "count", "datatype"),
    ("sendbuf", "sendcount", "sendtype"),
    ("recvbuf", "recvcount", "recvtype"),
    ("origin_addr", "origin_count", "origin_datatype"),
    ("result_addr", "result_count", "result_datatype"),
    ("inbuf", "incount", "datatype"),
];

/// Returns the procedures of all C functions that have a Fortran form, in table order.
///
/// # Errors
/// An invalid line of `table/fortran.txt`.
pub fn interfaces(table: &Table) -> Result<Vec<Interface>, ParseError> {
    let rules = Rules::builtin(table)?;
    let mut all = Vec::new();
    for function in &table.functions {
        let small = small_name(function);
        if rules.has(small, "none") {
            continue;
        }
        // The standard has no large-count form of these.
        if matches!(function.name.as_str(), "MPI_Psend_init_c" | "MPI_Precv_init_c") {
            continue;
        }
        all.push(Interface {
            arguments: arguments(table, &rules, function).map_err(|message| ParseError {
                file: "fortran.txt".into(),
                line: rules.line_of(small),
                message,
            })?,
            is_large: function.name != small,
            is_named: function.name != small && rules.has(small, "named"),
            is_single: function.name != small && rules.has(small, "single"),
            is_handwritten: rules.has(small, "handwritten"),
            function: function.clone(),
        });
    }
    Ok(all)
}

/// Name of the small form: functions whose forms differ in more than width are separate in the table.
fn small_name(function: &Function) -> &str {
    function.name.strip_suffix("_c").unwrap_or(&function.name)
}

fn arguments(table: &Table, rules: &Rules, function: &Function) -> Result<Vec<Argument>, String> {
    let mut all = Vec::new();
    for (parameter, param) in function.params.iter().enumerate() {
        let words = rules.words(small_name(function), &param.name);
        if words.contains(&"omit") {
            continue;
        }
        let kind = kind(table, function, param, &words)?;
        let array = array(function, param, &kind, &words);
        let name = words.iter().find_map(|w| w.strip_prefix("name=")).unwrap_or(&param.name);
        let is_asynchronous = is_asynchronous(function, param, &kind, array.is_some(), &words);
        all.push(Argument {
            name: name.into(),
            parameter,
            intent: intent(function, param, &kind, &words),
            is_asynchronous,
            is_used_later: is_asynchronous || words.contains(&"later"),
            kind,
            array,
        });
    }
    Ok(all)
}

fn kind(
    table: &Table, function: &Function, param: &Param, words: &[&str],
) -> Result<ArgumentKind, String> {
    let has = |word| words.contains(&word);
    let text = || ArgumentKind::Text {
        length: words.iter().find_map(|w| w.strip_prefix("length=")).map(str::to_string),
        drops_leading: has("lead"),
    };
    let base = param.ctype.base.as_str();
    let kind = table.kind(base).ok_or_else(|| format!("unknown type {base}"))?;
    Ok(match kind {
        _ if has("weights") => ArgumentKind::Weights,
        _ if has("errcodes") => ArgumentKind::ErrorCodes,
        _ if has("logical") && !has("integer") => ArgumentKind::Logical,
        _ if has("index") => ArgumentKind::Index,
        CTypeKind::Void if has("booleans") => ArgumentKind::Booleans,
        CTypeKind::Void if has("state") => ArgumentKind::State(has("old")),
        CTypeKind::Void if has("attribute") => ArgumentKind::Attribute(has("old")),
        CTypeKind::Void if has("base") => ArgumentKind::Base,
        CTypeKind::Void if has("detached") => ArgumentKind::Detached,
        CTypeKind::Void if has("location") => ArgumentKind::Location,
        CTypeKind::Void => ArgumentKind::Choice(element_count(function, param, words)),
        CTypeKind::Char => text(),
        CTypeKind::Int => ArgumentKind::Integer(IntegerKind::Default),
        CTypeKind::Aint => ArgumentKind::Integer(IntegerKind::Address),
        CTypeKind::Long if base == "MPI_Offset" => ArgumentKind::Integer(IntegerKind::Offset),
        CTypeKind::Long => ArgumentKind::Integer(IntegerKind::Count),
        CTypeKind::Status => ArgumentKind::Status,
        CTypeKind::Handle => ArgumentKind::Handle(base.into()),
        CTypeKind::Callback => ArgumentKind::Procedure(base.into()),
        CTypeKind::Double => return Err(format!("{} is a double", param.name)),
    })
}

/// Count and datatype of a choice buffer whose contents a derived type can describe.
fn element_count(function: &Function, param: &Param, words: &[&str]) -> Option<ElementCount> {
    let find = |name: &str| function.params.iter().find(|p| p.name == name && p.suffix.is_empty());
    // Reductions take predefined datatypes only; accumulates take derived ones too.
    if words.contains(&"blocks") || find("op").is_some() && find("win").is_none() {
        return None;
    }
    let (_, count, datatype) = BUFFERS.iter().find(|(buffer, ..)| *buffer == param.name)?;
    let datatype = find(datatype).or_else(|| find("datatype"))?;
    Some(ElementCount { count: find(count)?.name.clone(), datatype: datatype.name.clone() })
}

fn is_pointer(param: &Param) -> bool {
    param.ctype.stars > 0 || !param.suffix.is_empty()
}

fn intent(
    function: &Function, param: &Param, kind: &ArgumentKind, words: &[&str],
) -> Option<Intent> {
    for word in words.iter().rev() {
        match *word {
            "in" => return Some(Intent::In),
            "out" => return Some(Intent::Out),
            "inout" => return Some(Intent::InOut),
            "nointent" => return None,
            _ => {}
        }
    }
    match kind {
        ArgumentKind::Procedure(_) => None,
        ArgumentKind::State(_) | ArgumentKind::Attribute(_) => Some(Intent::In),
        ArgumentKind::Base | ArgumentKind::Detached => Some(Intent::Out),
        ArgumentKind::Choice(_) | ArgumentKind::Location | ArgumentKind::Status
            if !param.ctype.constant =>
        {
            None
        }
        _ if !is_pointer(param) || param.ctype.constant => Some(Intent::In),
        ArgumentKind::Handle(_) if function.inout.as_ref() == Some(&param.name) => {
            Some(Intent::InOut)
        }
        ArgumentKind::Handle(base) if base == "MPI_Request" && param.suffix == "[]" => {
            Some(Intent::InOut)
        }
        _ if function.inout.as_ref() == Some(&param.name) => Some(Intent::InOut),
        _ => Some(Intent::Out),
    }
}

fn array(function: &Function, param: &Param, kind: &ArgumentKind, words: &[&str]) -> Option<Array> {
    // `char name[]` is one string, `char *names[]` an array of strings.
    let is_string = matches!(kind, ArgumentKind::Text { .. }) && param.ctype.stars == 0;
    let is_array = !param.suffix.is_empty() && !is_string
        || matches!(kind, ArgumentKind::Weights)
        || *kind == ArgumentKind::Status && param.name.starts_with("array_of");
    if !is_array {
        return None;
    }
    let choices = words.iter().rev().find_map(|w| w.strip_prefix('[')?.strip_suffix(']'));
    let extent = match choices {
        Some(text) if text.contains(',') || text == "*" => text.to_string(),
        Some(text) => text
            .split('|')
            .find(|name| function.params.iter().any(|p| p.name == **name))
            .unwrap_or("*")
            .to_string(),
        None => "*".into(),
    };
    Some(Array { extent })
}

fn is_asynchronous(
    function: &Function, param: &Param, kind: &ArgumentKind, is_array: bool, words: &[&str],
) -> bool {
    if words.contains(&"async") {
        return true;
    }
    if words.contains(&"sync") {
        return false;
    }
    let has = |name: &str| function.params.iter().any(|p| p.name == name);
    let name = small_name(function);
    match kind {
        ArgumentKind::Choice(_) => {
            has("request") || has("win") || name.ends_with("_begin") || name.ends_with("_end")
        }
        ArgumentKind::Location => has("win") && !has("comm"),
        _ => is_array && has("request") && param.name != "array_of_requests",
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn find(name: &str) -> Interface {
        let table = Table::builtin().unwrap();
        interfaces(&table).unwrap().into_iter().find(|i| i.function.name == name).unwrap()
    }

    #[test]
    fn interfaces__have_the_standards_number() {
        let table = Table::builtin().unwrap();
        let all = interfaces(&table).unwrap();
        assert_eq!(all.iter().filter(|i| !i.is_large).count(), 430);
    }

    #[test]
    fn large_form__has_the_words_of_the_small_form() {
        let send = find("MPI_Isend_c");
        assert!(send.is_large && send.arguments[0].is_asynchronous);
        assert_eq!(send.arguments[1].kind, ArgumentKind::Integer(IntegerKind::Count));
        let pair = ElementCount { count: "count".into(), datatype: "datatype".into() };
        assert_eq!(send.arguments[0].kind, ArgumentKind::Choice(Some(pair)));
    }

    #[test]
    fn buffers__of_reductions_and_blocks_have_no_pair() {
        for (name, index) in [("MPI_Ireduce", 0), ("MPI_Ialltoall", 3), ("MPI_Igatherv", 3)] {
            assert_eq!(find(name).arguments[index].kind, ArgumentKind::Choice(None), "{name}");
        }
        assert!(matches!(find("MPI_Accumulate").arguments[0].kind, ArgumentKind::Choice(Some(_))));
    }

    #[test]
    fn strings__are_arrays_by_their_stars() {
        let array = |name: &str, index: usize| find(name).arguments[index].array.clone();
        assert_eq!(array("MPI_Unpack_external", 0), None);
        assert_eq!(array("MPI_Comm_spawn", 1), Some(Array { extent: "*".into() }));
    }

    #[test]
    fn omitted_parameters__leave_a_gap() {
        let thread = find("MPI_Init_thread");
        assert_eq!(thread.arguments.len(), 2);
        assert_eq!(thread.arguments[0].parameter, 2);
    }
}
