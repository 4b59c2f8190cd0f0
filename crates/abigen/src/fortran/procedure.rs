//! Interface bodies of the modules.

use super::interface::{Argument, ArgumentKind, IntegerKind, Intent, Interface};
use super::wrap::push_statement;
use crate::model::{CTypeKind, Table};

/// A way to use MPI from Fortran with explicit interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// Module `mpi`
    F90,
    /// Module `mpi_f08`
    F08,
}

/// How choice buffers are passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferForm {
    /// Module `mpi_f08` passes C descriptors of arrays.
    Descriptors,
    /// Both modules pass addresses. A compiler without assumed rank needs this.
    Addresses,
}

/// An external procedure with its explicit interface.
#[derive(Debug, Clone, Default)]
pub(super) struct Procedure {
    /// Name in Fortran, in module `mpi_f08` that of the specific procedure.
    pub name: String,
    /// Name of the symbol, if it is not the default one and the procedure is `bind(C)`.
    pub symbol: Option<String>,
    /// Type of the result, if the procedure is a function.
    pub result: Option<String>,
    pub dummies: Vec<Dummy>,
}

/// A dummy argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dummy {
    pub name: String,
    /// Type and attributes, as before `::`.
    pub kind: String,
    /// Extents, if the argument is an array of explicit shape.
    pub extent: Option<String>,
    /// Whether an argument of any type and rank may be passed, without a descriptor.
    pub is_unchecked: bool,
}

/// Directives for arguments without checks, one each for gfortran, for flang (also Cray, NVIDIA) and for Intel. Other
/// compilers read a directive as a comment.
const UNCHECKED: [&str; 3] =
    ["!GCC$ ATTRIBUTES NO_ARG_CHECK :: ", "!DIR$ IGNORE_TKR ", "!DEC$ ATTRIBUTES NO_ARG_CHECK :: "];

impl Dummy {
    pub(super) fn new(name: &str, kind: &str) -> Self {
        Self { name: name.into(), kind: kind.into(), extent: None, is_unchecked: false }
    }

    /// A choice buffer as a scalar: with an array flang rejects elements of assumed-shape arrays.
    pub(super) fn unchecked(name: &str) -> Self {
        Self { is_unchecked: true, ..Self::new(name, "real") }
    }

    pub(super) fn ierror(method: Method) -> Self {
        let kind = match method {
            Method::F90 => "integer",
            Method::F08 => "integer, optional, intent(out)",
        };
        Self::new("ierror", kind)
    }

    fn declarator(&self) -> String {
        match &self.extent {
            Some(extent) => format!("{}({extent})", self.name),
            None => self.name.clone(),
        }
    }
}

/// Text of an INTEGER type.
pub(super) fn integer(kind: IntegerKind) -> String {
    match kind {
        IntegerKind::Default => "integer",
        IntegerKind::Address => "integer(kind=MPI_ADDRESS_KIND)",
        IntegerKind::Count => "integer(kind=MPI_COUNT_KIND)",
        IntegerKind::Offset => "integer(kind=MPI_OFFSET_KIND)",
    }
    .into()
}

/// Text of a handle's type.
pub(super) fn handle(name: &str, method: Method) -> String {
    match method {
        Method::F90 => "integer".into(),
        Method::F08 => format!("type({name})"),
    }
}

impl Procedure {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The procedure of `interface`. `prefix` is "P" for the names of the profiling interface.
    pub(super) fn from_interface(
        table: &Table, interface: &Interface, method: Method, buffers: BufferForm, prefix: &str,
    ) -> Self {
        let function = &interface.function;
        let name = format!("{prefix}{}", function.name);
        let mut procedure = Self::new(&name);
        if method == Method::F08 {
            if buffers == BufferForm::Descriptors && has_choice_buffer(interface) {
                procedure.name = format!("{name}_f08ts");
                procedure.symbol = Some(format!("{}_", procedure.name.to_lowercase()));
            } else {
                procedure.name = format!("{name}_f08");
            }
        }
        procedure.dummies = interface
            .arguments
            .iter()
            .map(|argument| dummy(argument, method, buffers, procedure.symbol.is_some()))
            .collect();
        procedure.result = match table.kind(&function.ret.base) {
            Some(CTypeKind::Double) => Some("double precision".into()),
            Some(CTypeKind::Aint) => Some(integer(IntegerKind::Address)),
            _ => None,
        };
        if procedure.result.is_none() && !function.varargs {
            procedure.dummies.push(Dummy::ierror(method));
        }
        procedure
    }

    /// Appends the interface body.
    pub(super) fn push(&self, out: &mut String, indent: usize) {
        let names: Vec<&str> = self.dummies.iter().map(|dummy| dummy.name.as_str()).collect();
        let binding = match &self.symbol {
            Some(symbol) => format!(" bind(C,name=\"{symbol}\")"),
            None => String::new(),
        };
        let (kind, word) = match &self.result {
            Some(result) => (format!("{result} function"), "function"),
            None => ("subroutine".into(), "subroutine"),
        };
        push_statement(
            out,
            indent,
            &format!("{kind} {}({}){binding}", self.name, names.join(", ")),
        );
        let inner = indent + 2;
        if self.needs_import() {
            push_statement(out, inner, "import");
        }
        // Extents may name a scalar that follows the array.
        for is_array in [false, true] {
            self.push_declarations(out, inner, is_array);
        }
        for directive in UNCHECKED {
            let unchecked: Vec<&str> =
                self.dummies.iter().filter(|d| d.is_unchecked).map(|d| d.name.as_str()).collect();
            if !unchecked.is_empty() {
                push_statement(out, inner, &format!("{directive}{}", unchecked.join(", ")));
            }
        }
        push_statement(out, indent, &format!("end {word} {}", self.name));
    }

    fn push_declarations(&self, out: &mut String, indent: usize, is_array: bool) {
        let dummies = || self.dummies.iter().filter(|dummy| dummy.extent.is_some() == is_array);
        let mut kinds: Vec<&str> = Vec::new();
        for dummy in dummies() {
            if !kinds.contains(&dummy.kind.as_str()) {
                kinds.push(&dummy.kind);
            }
        }
        for kind in kinds {
            let names: Vec<String> =
                dummies().filter(|dummy| dummy.kind == kind).map(Dummy::declarator).collect();
            push_statement(out, indent, &format!("{kind} :: {}", names.join(", ")));
        }
    }

    /// Whether a declaration names an entity of the module.
    fn needs_import(&self) -> bool {
        let is_foreign = |text: &str| text.contains("MPI_") || text.contains("C_PTR");
        self.result.as_deref().is_some_and(is_foreign)
            || self.dummies.iter().any(|dummy| {
                is_foreign(&dummy.kind) || dummy.extent.as_deref().is_some_and(is_foreign)
            })
    }
}

/// Whether `mpi_f08` passes C descriptors to this procedure.
fn has_choice_buffer(interface: &Interface) -> bool {
    interface.arguments.iter().any(is_choice_buffer)
}

fn is_choice_buffer(argument: &Argument) -> bool {
    matches!(argument.kind, ArgumentKind::Choice(_) | ArgumentKind::Location)
}

fn dummy(argument: &Argument, method: Method, buffers: BufferForm, is_bind_c: bool) -> Dummy {
    let is_f08 = method == Method::F08;
    let address = || integer(IntegerKind::Address);
    let kind = match &argument.kind {
        ArgumentKind::Detached if !is_f08 => return Dummy::unchecked(&argument.name),
        _ if is_choice_buffer(argument) && !(is_f08 && buffers == BufferForm::Descriptors) => {
            let mut dummy = Dummy::unchecked(&argument.name);
            dummy.kind += &attributes(argument, method);
            return dummy;
        }
        ArgumentKind::Choice(_) | ArgumentKind::Location => "type(*), dimension(..)".into(),
        // gfortran 11 accepts no CHARACTER(LEN=*) in a bind(C) procedure. Other compilers pass a descriptor for both.
        ArgumentKind::Text { .. } if is_bind_c => "type(*), dimension(..)".into(),
        ArgumentKind::Base | ArgumentKind::Detached if is_f08 => "type(C_PTR)".into(),
        ArgumentKind::Detached | ArgumentKind::Base => address(),
        ArgumentKind::Integer(kind) => integer(*kind),
        ArgumentKind::State(true) | ArgumentKind::Attribute(true) | ArgumentKind::Index => {
            integer(IntegerKind::Default)
        }
        ArgumentKind::State(false) | ArgumentKind::Attribute(false) => address(),
        ArgumentKind::Weights | ArgumentKind::ErrorCodes => integer(IntegerKind::Default),
        ArgumentKind::Logical | ArgumentKind::Booleans => "logical".into(),
        ArgumentKind::Handle(name) => handle(name, method),
        ArgumentKind::Status if is_f08 => "type(MPI_Status)".into(),
        ArgumentKind::Status => "integer".into(),
        ArgumentKind::Text { length: Some(length), .. } if is_f08 => {
            format!("character(len={length})")
        }
        ArgumentKind::Text { .. } => "character(len=*)".into(),
        ArgumentKind::Procedure(name) if is_f08 => format!("procedure({name})"),
        ArgumentKind::Procedure(_) => "external".into(),
    };
    let extent = argument.array.as_ref().map(|array| array.extent.as_str());
    Dummy {
        extent: match (method, &argument.kind, extent) {
            (Method::F08, ..) => extent.map(Into::into),
            (Method::F90, ArgumentKind::Status, None) => Some("MPI_STATUS_SIZE".into()),
            (Method::F90, ArgumentKind::Status, Some(_)) => Some("MPI_STATUS_SIZE,*".into()),
            (Method::F90, _, extent) => extent.map(assumed_size),
        },
        ..Dummy::new(&argument.name, &(kind + &attributes(argument, method)))
    }
}

/// Attributes in `mpi_f08`. Module `mpi` has no intents: with INTENT(OUT) a compiler may delete what the caller stored
/// before the call, such as parts of a status.
fn attributes(argument: &Argument, method: Method) -> String {
    if method == Method::F90 {
        return String::new();
    }
    let intent = match argument.intent {
        Some(Intent::In) => ", intent(in)",
        Some(Intent::Out) => ", intent(out)",
        Some(Intent::InOut) => ", intent(inout)",
        None => "",
    };
    let asynchronous = if argument.is_asynchronous { ", asynchronous" } else { "" };
    format!("{intent}{asynchronous}")
}

/// Extent in module `mpi`: the last dimension is assumed, as in `mpif.h`.
fn assumed_size(extent: &str) -> String {
    match extent.rsplit_once(',') {
        Some((first, _)) => format!("{first},*"),
        None => "*".into(),
    }
}
