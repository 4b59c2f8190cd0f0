//! Predefined operations.

use crate::common::consts::*;

/// A predefined operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Builtin {
    Max,
    Min,
    Sum,
    Prod,
    Land,
    Band,
    Lor,
    Bor,
    Lxor,
    Bxor,
    MinLoc,
    MaxLoc,
    Replace,
    NoOp,
}

use Builtin::*;

impl Builtin {
    /// Every predefined operation.
    pub const ALL: [Builtin; 14] =
        [Max, Min, Sum, Prod, Land, Band, Lor, Bor, Lxor, Bxor, MinLoc, MaxLoc, Replace, NoOp];

    /// Returns the ABI's handle.
    pub fn handle(self) -> usize {
        match self {
            Max => MPI_MAX,
            Min => MPI_MIN,
            Sum => MPI_SUM,
            Prod => MPI_PROD,
            Land => MPI_LAND,
            Band => MPI_BAND,
            Lor => MPI_LOR,
            Bor => MPI_BOR,
            Lxor => MPI_LXOR,
            Bxor => MPI_BXOR,
            MinLoc => MPI_MINLOC,
            MaxLoc => MPI_MAXLOC,
            Replace => MPI_REPLACE,
            NoOp => MPI_NO_OP,
        }
    }

    /// Returns the standard's name.
    pub fn name(self) -> &'static str {
        match self {
            Max => "MPI_MAX",
            Min => "MPI_MIN",
            Sum => "MPI_SUM",
            Prod => "MPI_PROD",
            Land => "MPI_LAND",
            Band => "MPI_BAND",
            Lor => "MPI_LOR",
            Bor => "MPI_BOR",
            Lxor => "MPI_LXOR",
            Bxor => "MPI_BXOR",
            MinLoc => "MPI_MINLOC",
            MaxLoc => "MPI_MAXLOC",
            Replace => "MPI_REPLACE",
            NoOp => "MPI_NO_OP",
        }
    }

    /// Returns whether the operation commutes.
    pub fn commutes(self) -> bool {
        !matches!(self, Replace | NoOp)
    }

    /// Describes the types that the operation is defined for (MPI 5.0, section 6.9.2).
    pub fn types(self) -> &'static str {
        match self {
            Max | Min => "takes integers and floating point",
            Sum | Prod => "takes integers, floating point and complex numbers",
            Land | Lor | Lxor => "takes integers and logicals",
            Band | Bor | Bxor => "takes integers and MPI_BYTE",
            MinLoc | MaxLoc => "takes pairs such as MPI_DOUBLE_INT",
            Replace | NoOp => "takes any predefined datatype",
        }
    }
}
