//! Description of a run, in a few lines above a table.

use crate::output::table::describe_clock;
use crate::record::{Machine, Run};

/// Lists names and values that describe a run.
pub fn list_facts(run: &Run) -> Vec<(&'static str, String)> {
    let (mpi, clock) = (&run.mpi, &run.clock);
    let mut facts = vec![("tool", run.tool.clone()), ("command", run.command.join(" "))];
    if !mpi.name.is_empty() {
        let (name, version, path) = (&mpi.name, &mpi.version, &mpi.path);
        facts.push(("MPI", format!("{name} ({version}; {path})")));
    }
    facts.push(("machine", describe_machine(&run.machine)));
    if !clock.source.is_empty() {
        facts.push(("clock", describe_clock(clock)));
    }
    let adapter = run.adapter.iter();
    facts.extend(adapter.map(|l| ("adapter", l.trim_start_matches("adapter: ").to_owned())));
    let set = run.environment.iter();
    facts.extend(set.map(|(name, value)| ("set", format!("{name}={value}"))));
    facts
}

/// Describes a run in lines.
pub fn describe_run(run: &Run) -> String {
    let line = |(name, value)| format!("{:<8} {value}\n", format!("{name}:"));
    list_facts(run).into_iter().map(line).collect()
}

/// Describes the machine in one line.
pub fn describe_machine(machine: &Machine) -> String {
    format!(
        "{}, {}, {} processors, Linux {}, governor {}{}",
        machine.host,
        machine.processor,
        machine.processors,
        machine.kernel,
        machine.governor.as_deref().unwrap_or("unknown"),
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
    use crate::testing::samples::make_report;

    #[test]
    fn run__states_tool_machine_clock_and_settings() {
        let mut run = make_report().run;
        run.environment.insert("FASTPATH_WAIT".into(), "spin".into());
        let text = describe_run(&run);
        for part in
            ["0123abc", "node7", "tsc: 2.500000 GHz", "governor unknown", "FASTPATH_WAIT=spin"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
