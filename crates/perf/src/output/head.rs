//! How a run was made, in a few lines above a table.

use super::format::format_number;
use crate::record::{Machine, Run};

/// How the run was made.
pub fn describe_run(run: &Run) -> String {
    let (mpi, machine, clock) = (&run.mpi, &run.machine, &run.clock);
    let mut text = format!("{}: {}\n", run.tool, run.command.join(" "));
    if !mpi.name.is_empty() {
        text += &format!("MPI:     {} ({}; {})\n", mpi.name, mpi.version, mpi.path);
    }
    text += &format!("machine: {}\n", describe_machine(machine));
    if !clock.source.is_empty() {
        text += &format!(
            "clock:   {}, {:.3} MHz (off by {:.1} ppm against the kernel's), steps of {} ns, one \
             reading {} ns\n",
            clock.source,
            clock.frequency_hz / 1e6,
            clock.frequency_error_ppm,
            format_number(clock.resolution_ns),
            format_number(clock.read_ns),
        );
    }
    for line in &run.adapter {
        text += &format!("adapter: {}\n", line.trim_start_matches("adapter: "));
    }
    for (name, value) in &run.environment {
        text += &format!("set:     {name}={value}\n");
    }
    text
}

/// Where it ran, in a line.
pub fn describe_machine(machine: &Machine) -> String {
    format!(
        "{}, {}, {} processors, Linux {}, governor {}{}",
        machine.host,
        machine.processor,
        machine.processors,
        machine.kernel,
        machine.governor.as_deref().unwrap_or("not readable"),
        machine
            .hypervisor
            .as_ref()
            .map(|h| format!(", a virtual machine ({h})"))
            .unwrap_or_default(),
    )
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::record::samples::make_report;

    #[test]
    fn run__states_tool_machine_clock_and_settings() {
        let mut run = make_report().run;
        run.environment
            .insert("FASTPATH_WAIT".into(), "spin".into());
        let text = describe_run(&run);
        for part in [
            "0123abc",
            "node7",
            "tsc, 2500.000 MHz",
            "governor not readable",
            "FASTPATH_WAIT=spin",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
