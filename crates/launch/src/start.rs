//! Starting the processes of ranks: those of the command line, and those that ranks ask for later.

use crate::args::{App, JobSpec};
use crate::environment::select_variables;
use crate::limits::{Need, describe_clone, describe_files};
use crate::output::Outputs;
use crate::poll::{Poller, make_pipe};
use crate::program::{
    ProgramError, c_pair, c_string, check_wdir, describe_exec_error, find_program,
};
use crate::ranks::Ranks;
use crate::signals::Inherited;
use crate::spawn::{RankStart, SpawnError, Spawner, StartStep};
use crate::watch::STREAMS;
use fastpath_base::config::{Config, Key};
use fastpath_base::refusal::describe_call;
use fastpath_base::sync::Ordering;
use fastpath_base::topology::CpuSet;
use fastpath_bootstrap::job::{Identity, JOB_VARIABLE, PARENT_VARIABLE, parent};
use fastpath_bootstrap::network::Listener;
use fastpath_bootstrap::segment::Segment;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;

/// Why something did not start: exit code and text.
pub type Refusal = (i32, String);

/// A program with everything looked up.
pub struct Prepared {
    program: CString,
    /// Where it is.
    pub path: PathBuf,
    argv: Vec<CString>,
    env: Vec<CString>,
    wdir: Option<CString>,
    /// Whether its ranks look for mistakes.
    pub checks: bool,
    /// The file for a trace.
    pub trace: Option<PathBuf>,
}

/// Looks everything up that an app is started with.
///
/// # Errors
/// The folder, the program or a variable is wrong.
pub fn prepare_app(app: &App, spec: &JobSpec) -> Result<Prepared, ProgramError> {
    check_wdir(app)?;
    let mut env: BTreeMap<OsString, OsString> = select_variables(std::env::vars_os(), spec, app);
    if let Some(dir) = app.wdir.as_ref().and_then(|d| std::path::absolute(d).ok()) {
        env.insert("PWD".into(), dir.into());
    }
    env.extend(spec.env.iter().cloned());
    env.extend(app.env.iter().cloned());
    let pairs = env.iter().map(|(n, v)| (n.clone(), v.clone()));
    let config =
        Config::from_pairs(pairs).map_err(|e| ProgramError { code: 2, text: e.to_string() })?;
    let trace = config.text(Key::Trace);
    let trace = (!trace.is_empty()).then(|| PathBuf::from(trace));
    let found = find_program(app, search_path(app, &env).as_deref())?;
    let path = std::path::absolute(&found).unwrap_or(found);
    Ok(Prepared {
        program: c_string(path.as_os_str()),
        path,
        argv: app.argv.iter().map(|a| c_string(a)).collect(),
        env: env.iter().map(|(n, v)| c_pair(n, v)).collect(),
        wdir: app.wdir.as_ref().map(|d| c_string(d.as_os_str())),
        checks: config.flag(Key::Check),
        trace,
    })
}

/// Where programs are looked for: folders of `-path`, then PATH, the launcher's own where the ranks get none.
fn search_path(app: &App, env: &BTreeMap<OsString, OsString>) -> Option<OsString> {
    let path = env.get(OsStr::new("PATH")).cloned();
    let path = path.or_else(|| std::env::var_os("PATH"));
    match (&app.path, path) {
        (Some(first), Some(path)) => Some([first, OsStr::new(":"), &path].into_iter().collect()),
        (first, path) => path.or_else(|| first.clone()),
    }
}

/// What one rank is.
pub struct NewRank<'a> {
    /// Its rank in the job.
    pub rank: usize,
    /// Its rank in its `MPI_COMM_WORLD`, and how many that has.
    pub world: (usize, usize),
    /// What it runs.
    pub app: &'a Prepared,
    /// Its standard input.
    pub input: RawFd,
    /// Processors that it is bound to.
    pub cpus: Option<&'a CpuSet>,
    /// What was opened for it to listen on.
    pub listener: Option<&'a Listener>,
}

/// Where a rank that starts is looked after.
pub struct StartContext<'a, 'b> {
    /// The job's memory.
    pub segment: &'a Segment,
    /// The processes.
    pub ranks: &'a mut Ranks,
    /// Their output.
    pub outputs: &'a mut Outputs<'b>,
    /// Events.
    pub poller: &'a Poller,
}

/// What all ranks of the job are started with.
pub struct Starter {
    spawner: Spawner,
    identity: Identity,
    /// Where the process of another job that has spawned this one waits, in the form that ranks get.
    parent: Option<String>,
    need: Need,
}

impl Starter {
    /// `keep`: the descriptor of the job's memory that ranks inherit.
    ///
    /// # Errors
    /// No memory.
    pub fn new(
        inherited: Inherited, segment: &Segment, keep: RawFd, need: Need,
    ) -> Result<Starter, Refusal> {
        let spawner = Spawner::new(inherited);
        let spawner = spawner.map_err(|e| (1, format!("no memory to start ranks: {e}")))?;
        let identity = Identity {
            fd: keep,
            rank: 0,
            launcher: std::process::id(),
            job_id: segment.header().job_id.load(Ordering::Relaxed),
            listeners: Vec::new(),
        };
        Ok(Starter {
            spawner,
            parent: parent::read_of_launcher().map(|port| parent::tell(identity.job_id, &port)),
            identity,
            need,
        })
    }

    /// Starts one rank, whose page is prepared and whose outputs are open.
    ///
    /// # Errors
    /// Why it does not run. Nothing is left of it.
    pub fn start(
        &mut self, new: &NewRank<'_>, at: &mut StartContext<'_, '_>,
    ) -> Result<(), Refusal> {
        let files = |e: std::io::Error| (1, describe_files("pipe2", &e, self.need));
        let rank = new.rank;
        // Kept by the rank; closed here when it runs.
        new.listener.iter().for_each(|listener| listener.set_inherited(true));
        let identity = Identity {
            rank,
            listeners: new.listener.map(Listener::fds).unwrap_or_default(),
            ..self.identity.clone()
        };
        let (own_rank, size) = new.world;
        let own = [
            c_pair(JOB_VARIABLE.as_ref(), identity.to_string().as_ref()),
            c_pair("FASTPATH_RANK".as_ref(), own_rank.to_string().as_ref()),
            c_pair("FASTPATH_SIZE".as_ref(), size.to_string().as_ref()),
        ];
        let parent = self.parent.as_ref();
        let parent = parent.map(|told| c_pair(PARENT_VARIABLE.as_ref(), told.as_ref()));
        let own: Vec<CString> = own.into_iter().chain(parent).collect();
        let (out_reader, out) = make_pipe().map_err(files)?;
        let (err_reader, err) = make_pipe().map_err(files)?;
        let Some(page) = at.segment.page(rank) else {
            return Err((1, format!("there is no place for rank {rank}")));
        };
        let app = new.app;
        let pid = self
            .spawner
            .spawn(&RankStart {
                program: &app.program,
                argv: &app.argv,
                env: [&app.env, &own],
                wdir: app.wdir.as_ref(),
                stdio: [new.input, out.as_raw_fd(), err.as_raw_fd()],
                keep: self.identity.fd,
                cpus: new.cpus,
                pid_cell: &page.launched_pid,
            })
            .map_err(|e| describe_spawn_error(&e, rank, app))?;
        at.ranks.started(rank, pid);
        for (which, reader) in [(0, out_reader), (1, err_reader)] {
            at.outputs.add_stream(at.poller, STREAMS, rank, which, reader);
        }
        Ok(())
    }
}

fn describe_spawn_error(error: &SpawnError, rank: usize, app: &Prepared) -> Refusal {
    let cause = std::io::Error::from_raw_os_error(error.errno);
    match error.step {
        StartStep::Exec => {
            let e = describe_exec_error(&app.path, error.errno);
            (e.code, e.text)
        }
        StartStep::Chdir => (2, format!("-wdir: {cause}")),
        StartStep::Clone => {
            let why = describe_clone(&cause);
            (1, format!("rank {rank} cannot be started: {why}"))
        }
        StartStep::Setup(call) => {
            let why = describe_call(call, &cause);
            (1, format!("rank {rank} cannot be started: {why}"))
        }
    }
}
