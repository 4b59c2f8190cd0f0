//! Programs of ranks that a tool starts (`-gtool`).

use crate::args::{App, JobSpec};
use crate::program::ProgramError;
use crate::start::{PreparedProgram, prepare_app};
use std::ffi::OsString;

/// Programs of a job, and the same programs behind the tools that start them.
pub struct Programs {
    /// Programs of the command line.
    pub apps: Vec<PreparedProgram>,
    /// Position in `apps` of each rank's program.
    pub app_of: Vec<usize>,
    /// Positions of a tool and of a program, and the tool with the program as its arguments.
    with_tools: Vec<((usize, usize), PreparedProgram)>,
}

impl Programs {
    /// Finds the programs and the tools.
    ///
    /// # Errors
    /// A program or tool is missing or cannot be executed.
    pub fn prepare(spec: &JobSpec) -> Result<Programs, ProgramError> {
        let apps = spec.apps.iter().map(|app| prepare_app(app, spec));
        let apps = apps.collect::<Result<Vec<PreparedProgram>, _>>()?;
        let app_of: Vec<usize> =
            spec.apps.iter().enumerate().flat_map(|(i, app)| vec![i; app.ranks]).collect();
        let mut with_tools: Vec<((usize, usize), PreparedProgram)> = Vec::new();
        for (rank, &app) in app_of.iter().enumerate() {
            let tool = spec.tools.iter().position(|tool| tool.has_rank(rank));
            let Some(key) = tool.map(|tool| (tool, app)) else { continue };
            if !with_tools.iter().any(|(known, _)| *known == key) {
                let argv = add_tool(&spec.tools[key.0].words, &apps[app], &spec.apps[app]);
                let whole = App { argv, ..spec.apps[app].clone() };
                with_tools.push((key, prepare_app(&whole, spec)?));
            }
        }
        Ok(Programs { apps, app_of, with_tools })
    }

    /// Returns the command of a rank: the program, or the tool that starts it.
    pub fn of_rank(&self, spec: &JobSpec, rank: usize) -> &PreparedProgram {
        let app = self.app_of[rank];
        let tool = spec.tools.iter().position(|tool| tool.has_rank(rank));
        let found = self.with_tools.iter().find(|((t, a), _)| Some(*t) == tool && *a == app);
        found.map_or(&self.apps[app], |(_, program)| program)
    }
}

/// Returns the words of a tool, then path and arguments of the program. With a path, the tool does not search `PATH`.
fn add_tool(tool: &[OsString], program: &PreparedProgram, app: &App) -> Vec<OsString> {
    let path = program.path.clone().into_os_string();
    tool.iter().cloned().chain([path]).chain(app.argv.iter().skip(1).cloned()).collect()
}
