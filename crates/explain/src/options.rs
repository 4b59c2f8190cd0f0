//! Options that several subcommands of `fastpath explain` have.

use std::path::PathBuf;

use clap::{Arg, Args};
use fastpath_pcie::{Bytes, Link, StatedRate};

use super::moves::{MoveDirection, Ratio};

/// Output of an explanation.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct OutputOptions {
    /// Print JSON (docs/schema/explanation-1.json), one object a line for each device
    #[arg(long)]
    pub json: bool,
    /// Write a self-contained page with charts of the waterfalls (HTML)
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Lets a value begin with a sign, so that its parser reports the error.
pub fn take_signs(arg: Arg) -> Arg {
    let takes = arg.get_action().takes_values() && !arg.is_positional();
    arg.allow_hyphen_values(takes)
}

/// Measured figure, and link values that override those that were read.
#[derive(Args, Clone, Debug, Default)]
#[command(mut_args(take_signs))]
pub struct LinkOptions {
    /// Measured bandwidth with its unit, such as 3552MiB/s or 12.3GB/s
    #[arg(long, value_name = "RATE")]
    pub measured: Option<StatedRate>,
    /// Direction of the measured transfers [default: both are printed]
    #[arg(long, value_enum)]
    pub direction: Option<MoveDirection>,
    /// Ratio of bytes written to bytes read, with --direction both [default: 1:1]
    #[arg(long, value_name = "W:R")]
    pub ratio: Option<Ratio>,
    /// PCIe link, instead of the one that was read: generation and lanes, such as 2.0x8
    #[arg(long, value_name = "LINK")]
    pub pcie: Option<Link>,
    /// Maximum payload size (MPS), instead of the value that was read
    #[arg(long, value_name = "BYTES")]
    pub mps: Option<Bytes>,
    /// Maximum read request size (MRRS), instead of the value that was read
    #[arg(long, value_name = "BYTES")]
    pub mrrs: Option<Bytes>,
    /// Address width in bits: 64, or 32 if the memory is below 4 GiB
    #[arg(long, value_name = "BITS")]
    pub address: Option<u32>,
}

impl LinkOptions {
    pub fn is_given(&self) -> bool {
        self.measured.is_some() || self.pcie.is_some() || self.mps.is_some() || self.mrrs.is_some()
    }
}

/// A device of this machine: location of its files, further facts, output format.
#[derive(Args, Clone, Debug)]
pub struct LocalOptions {
    /// Path of sysfs
    #[arg(long, default_value = "/sys", hide = true)]
    pub sysfs: PathBuf,
    /// Further facts
    #[command(flatten)]
    pub link: LinkOptions,
    /// Output format
    #[command(flatten)]
    pub output: OutputOptions,
}
