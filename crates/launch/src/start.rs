//! Starts processes of ranks: those of the command line, and spawned ones.

use crate::args::{App, JobSpec};
use crate::environment::select_variables;
use crate::limits::{Need, describe_clone, describe_files};
use crate::mpir;
use crate::output::Outputs;
use crate::poll::{Poller, STREAMS, make_pipe};
use crate::program::{
    ProgramError, c_pair, c_string, check_wdir, describe_exec_error, find_program,
};
use crate::ranks::Ranks;
use crate::signals::{InheritedSignals, is_niced};
use crate::spawn::{RankSession, RankStart, SpawnError, Spawner, StartStep};
use fastpath_base::config::{Config, Key, PROFILE_LIBRARY};
use fastpath_base::refusal::describe_call;
use fastpath_base::sync::Ordering;
use fastpath_base::tell;
use fastpath_base::topology::CpuSet;
use fastpath_job::network::Listener;
use fastpath_job::{Identity, JOB_VARIABLE, PARENT_VARIABLE, parent};
use fastpath_segment::Segment;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub type Refusal = (i32, String);

pub struct PreparedProgram {
    program: CString,
    pub path: PathBuf,
    argv: Vec<CString>,
    env: Vec<CString>,
    wdir: Option<CString>,
    /// Whether the ranks check for MPI errors (FASTPATH_CHECK).
    pub checks: bool,
    pub trace: Option<PathBuf>,
    /// File of metrics at the end of the job (FASTPATH_METRICS).
    pub metrics: Option<PathBuf>,
}

pub fn prepare_app(app: &App, spec: &JobSpec) -> Result<PreparedProgram, ProgramError> {
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
    if config.profile().is_some() {
        preload_profile(&mut env);
    }
    let file = |key| Some(config.text(key)).filter(|text| !text.is_empty()).map(PathBuf::from);
    let found = find_program(app, search_path(app, &env).as_deref())?;
    let path = std::path::absolute(&found).unwrap_or(found);
    Ok(PreparedProgram {
        program: c_string(path.as_os_str()),
        path,
        argv: app.argv.iter().map(|a| c_string(a)).collect(),
        env: env.iter().map(|(n, v)| c_pair(n, v)).collect(),
        wdir: app.wdir.as_ref().map(|d| c_string(d.as_os_str())),
        checks: config.flag(Key::Check),
        trace: file(Key::Trace),
        metrics: file(Key::Metrics),
    })
}

/// Preloads the profiling library into the ranks, behind the libraries that the user preloads.
fn preload_profile(env: &mut BTreeMap<OsString, OsString>) {
    let program = std::env::current_exe().unwrap_or_default();
    let prefix = program.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let library = prefix.join("lib").join(PROFILE_LIBRARY);
    let has_separator = library.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte));
    let cause = match (library.exists(), has_separator) {
        (false, _) => Some("is not installed"),
        (true, true) => Some("has a space or colon in its path, which LD_PRELOAD cannot hold"),
        (true, false) => None,
    };
    if let Some(cause) = cause {
        let library = library.display();
        tell!("mpiexec: no profile is written for FASTPATH_PROFILE: {library} {cause}");
        return;
    }
    let listed = env.entry("LD_PRELOAD".into()).or_default();
    if !listed.is_empty() {
        listed.push(":");
    }
    listed.push(library);
}

/// Search path of programs: folders of `-path`, then PATH. The launcher's own PATH is used if the ranks get none.
fn search_path(app: &App, env: &BTreeMap<OsString, OsString>) -> Option<OsString> {
    let path = env.get(OsStr::new("PATH")).cloned();
    let path = path.or_else(|| std::env::var_os("PATH"));
    match (&app.path, path) {
        (Some(first), Some(path)) => Some([first, OsStr::new(":"), &path].into_iter().collect()),
        (first, path) => path.or_else(|| first.clone()),
    }
}

pub struct NewRank<'a> {
    pub rank: usize,
    /// Rank in its `MPI_COMM_WORLD`, and the size of this communicator.
    pub world: (usize, usize),
    pub app: &'a PreparedProgram,
    pub input: RawFd,
    pub cpus: Option<&'a CpuSet>,
    pub listener: Option<&'a Listener>,
}

pub struct StartContext<'a, 'b> {
    pub segment: &'a Segment,
    pub ranks: &'a mut Ranks,
    pub outputs: &'a mut Outputs<'b>,
    pub poller: &'a Poller,
}

pub struct RankStarter {
    spawner: Spawner,
    identity: Identity,
    /// Port of the process of another job that spawned this job, in the form that ranks get; None if there is no such
    /// process.
    parent: Option<String>,
    need: Need,
    /// Whether ranks stay in the launcher's session. They stay if the launcher has a nice value other than 0, because
    /// nice values count only among processes of one session. They also stay if the launcher is debugged, because gdb
    /// would remove its breakpoints from the memory that the launcher shares with the leader of a new session.
    keeps_session: bool,
}

impl RankStarter {
    /// Makes the starter of a job. `keep` is the descriptor of the job's segment that ranks inherit.
    pub fn new(
        inherited: InheritedSignals, segment: &Segment, keep: RawFd, need: Need,
    ) -> Result<RankStarter, Refusal> {
        let spawner = Spawner::new(inherited);
        let spawner =
            spawner.map_err(|e| (1, format!("cannot allocate memory to start ranks: {e}")))?;
        let identity = Identity {
            fd: keep,
            rank: 0,
            launcher: std::process::id(),
            job_id: segment.header().job_id.load(Ordering::Relaxed),
            listeners: Vec::new(),
        };
        Ok(RankStarter {
            spawner,
            parent: parent::read_of_launcher().map(|port| parent::tell(identity.job_id, &port)),
            identity,
            need,
            keeps_session: is_niced() || mpir::is_debugged(),
        })
    }

    /// Starts one rank, whose page is prepared and whose outputs are open.
    ///
    /// # Errors
    /// The reason. No process is left behind.
    pub fn start(
        &mut self, new: &NewRank<'_>, at: &mut StartContext<'_, '_>,
    ) -> Result<(), Refusal> {
        let files = |e: std::io::Error| (1, describe_files("pipe2", &e, self.need));
        let rank = new.rank;
        // The rank inherits the listener; this process closes the listener when the rank runs.
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
            return Err((1, format!("the shared memory of the job has no room for rank {rank}")));
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
                session: match page.bound.load(Ordering::Relaxed) {
                    _ if self.keeps_session => RankSession::Launcher,
                    0 => RankSession::Job,
                    _ => RankSession::Own,
                },
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

fn describe_spawn_error(error: &SpawnError, rank: usize, app: &PreparedProgram) -> Refusal {
    let cause = std::io::Error::from_raw_os_error(error.errno);
    match error.step {
        StartStep::Exec => {
            let e = describe_exec_error(&app.path, error.errno);
            (e.code, e.text)
        }
        StartStep::Chdir => {
            let folder = app.wdir.as_deref().unwrap_or_default().to_string_lossy();
            let remedy = "pass a folder that this user can enter on this host";
            (2, format!("-wdir {folder}: {cause}; {remedy}"))
        }
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
