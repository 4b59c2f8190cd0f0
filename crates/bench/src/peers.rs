//! Other MPIs: compilers, launchers and launcher arguments.

use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, bail, ensure};
use clap::Args;
use fastpath_base::topology;
use fastpath_report::record::Report;
use fastpath_report::surroundings;

use crate::options::MpiOptions;
use crate::program::{ProgramJob, STALL, Settings};

/// Resolves a bare command name by PATH, as a shell does.
pub fn find_command(name: &Path) -> PathBuf {
    if name.components().count() > 1 {
        return name.to_owned();
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .unwrap_or_else(|| name.to_owned())
}

/// An MPI library: this library or a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComparedMpi {
    /// Name in tables.
    pub name: String,
    pub mpicc: PathBuf,
    pub mpiexec: PathBuf,
    /// Variables for compiler, launcher and ranks.
    pub environment: Vec<(String, String)>,
    pub arguments: Vec<String>,
    /// Further arguments if there are enough processors for all ranks.
    pub arguments_fit: Vec<String>,
    /// Further arguments if there are more ranks than processors.
    pub arguments_crowded: Vec<String>,
}

impl ComparedMpi {
    /// Creates an MPI. By default the launcher is in the folder of the compiler wrapper.
    pub fn new(name: &str, mpicc: &Path, mpiexec: Option<&Path>) -> ComparedMpi {
        let beside = || mpicc.with_file_name("mpiexec");
        ComparedMpi {
            name: name.to_owned(),
            mpicc: mpicc.to_owned(),
            mpiexec: mpiexec.map_or_else(beside, Path::to_owned),
            ..ComparedMpi::default()
        }
    }

    /// Returns this MPI: the one that the options name, or the one installed beside this program. Fails if there is
    /// neither.
    pub fn ours(options: &MpiOptions) -> Result<ComparedMpi> {
        let own = std::env::current_exe().unwrap_or_default();
        let named = options.mpicc.as_deref().map(find_command);
        let mpicc = named.unwrap_or_else(|| own.with_file_name("mpicc"));
        let mpiexec = options.mpiexec.as_deref().map(find_command);
        let ours = ComparedMpi {
            arguments: options.mpiexec_arg.clone(),
            ..ComparedMpi::new("fastpath", &mpicc, mpiexec.as_deref())
        };
        for (path, option) in [(&ours.mpicc, "--mpicc"), (&ours.mpiexec, "--mpiexec")] {
            let shown = path.display();
            ensure!(path.exists(), "{shown} does not exist; pass another path to {option}");
        }
        Ok(ours)
    }

    /// Adds launcher arguments for the hosts of the options.
    pub fn on_hosts(mut self, options: &MpiOptions) -> ComparedMpi {
        let words = options.list_host_words(&self.mpiexec);
        self.arguments.extend(words);
        self
    }

    fn list_arguments_on(&self, ranks: u32, processors: usize) -> Vec<String> {
        let fits = ranks as usize <= processors;
        let further = if fits { &self.arguments_fit } else { &self.arguments_crowded };
        [self.arguments.as_slice(), further].concat()
    }

    /// Returns the launcher's arguments for `ranks` ranks on this machine.
    pub fn list_arguments(&self, ranks: u32) -> Vec<String> {
        self.list_arguments_on(ranks, topology::usable_processors())
    }

    pub fn job(&self, ranks: u32, settings: &Settings) -> ProgramJob {
        ProgramJob {
            mpiexec: self.mpiexec.clone(),
            mpiexec_arguments: self.list_arguments(ranks),
            environment: self.environment.clone(),
            ranks,
            arguments: settings.arguments(),
            stall: STALL,
        }
    }

    pub fn report(&self) -> Report {
        let mut run = surroundings::describe_run();
        run.mpi.name.clone_from(&self.name);
        run.mpi.path = format!("{}, {}", self.mpicc.display(), self.mpiexec.display());
        run.environment.extend(self.environment.iter().cloned());
        Report::new(run)
    }
}

/// The other MPIs.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Other MPIs")]
pub struct PeerOptions {
    /// Another MPI: its name, compiler wrapper and launcher [default: mpiexec beside the wrapper]
    #[arg(long, value_name = "NAME=MPICC[,MPIEXEC]")]
    pub peer: Vec<String>,
    /// Environment variable for a peer's launcher and ranks
    #[arg(long, value_name = "NAME:VAR=VALUE")]
    pub peer_env: Vec<String>,
    /// Arguments for a peer's launcher
    #[arg(long, value_name = "NAME:ARG[,ARG]...")]
    pub peer_arg: Vec<String>,
    /// Further arguments for a peer's launcher, if there are enough processors for all ranks
    #[arg(long, value_name = "NAME:ARG[,ARG]...")]
    pub peer_arg_fit: Vec<String>,
    /// Further arguments for a peer's launcher, if there are more ranks than processors
    #[arg(long, value_name = "NAME:ARG[,ARG]...")]
    pub peer_arg_crowded: Vec<String>,
    /// File with the options --peer, --peer-env, --peer-arg, --peer-arg-fit and --peer-arg-crowded, one option a line;
    /// the script bench/peers of the source tree prints such a file
    #[arg(long, value_name = "FILE")]
    pub peers: Vec<PathBuf>,
}

impl PeerOptions {
    /// Lists the peers of the command line, then those of files. Fails if a file cannot be read or a word is invalid.
    pub fn list(&self) -> Result<Vec<ComparedMpi>> {
        let mut words = self.clone();
        for path in &self.peers {
            let text = std::fs::read_to_string(path).map_err(Error::from);
            let added = text.and_then(|text| words.add_file(&text));
            added.with_context(|| path.display().to_string())?;
        }
        words.parse()
    }

    /// Adds the peers of a file, with one option a line. Empty lines and those that begin with `#` are skipped. An
    /// error has the number of its line.
    fn add_file(&mut self, text: &str) -> Result<()> {
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (option, value) = line
                .split_once(['=', ' '])
                .with_context(|| format!("line {}: `{line}` has no value", number + 1))?;
            let list = match option {
                "--peer" => &mut self.peer,
                "--peer-env" => &mut self.peer_env,
                "--peer-arg" => &mut self.peer_arg,
                "--peer-arg-fit" => &mut self.peer_arg_fit,
                "--peer-arg-crowded" => &mut self.peer_arg_crowded,
                _ => {
                    let number = number + 1;
                    bail!("line {number}: `{option}` is not an option of a peer");
                }
            };
            list.push(value.trim().to_owned());
        }
        Ok(())
    }

    /// Parses the peers. A name must be given by exactly one `--peer`.
    fn parse(&self) -> Result<Vec<ComparedMpi>> {
        let mut peers: Vec<ComparedMpi> = Vec::new();
        for word in &self.peer {
            let peer = parse_peer(word)?;
            if peers.iter().any(|p| p.name == peer.name) {
                bail!("two peers have the name `{}`; give each --peer another name", peer.name);
            }
            peers.push(peer);
        }
        for word in &self.peer_env {
            let (peer, rest) = find_peer(&mut peers, "--peer-env", word)?;
            match rest.split_once('=') {
                Some((variable, value)) if !variable.is_empty() => {
                    peer.environment.push((variable.to_owned(), value.to_owned()));
                }
                _ => bail!("--peer-env {word}: expected NAME:VAR=VALUE"),
            }
        }
        type Pick = fn(&mut ComparedMpi) -> &mut Vec<String>;
        let lists: [(&str, &[String], Pick); 3] = [
            ("--peer-arg", &self.peer_arg, |p| &mut p.arguments),
            ("--peer-arg-fit", &self.peer_arg_fit, |p| &mut p.arguments_fit),
            ("--peer-arg-crowded", &self.peer_arg_crowded, |p| &mut p.arguments_crowded),
        ];
        for (option, words, pick) in lists {
            for word in words {
                let (peer, rest) = find_peer(&mut peers, option, word)?;
                pick(peer).extend(rest.split(',').map(str::to_owned));
            }
        }
        Ok(peers)
    }
}

/// Returns the remedy for a peer that cannot run, in one line, if `error` shows the cause.
pub fn find_remedy(peer: &str, error: &str) -> Option<String> {
    if error.contains("as root") {
        return Some(format!(
            "the launcher of {peer} refuses to run as root; add --peer-arg \
             {peer}:--allow-run-as-root, or run as another user"
        ));
    }
    let path = error.strip_prefix("cannot run ")?.split_once(": No such file")?.0;
    path.ends_with("cc").then(|| {
        format!(
            "the compiler wrapper {path} does not exist; if {peer} has the standard MPI ABI (as \
             MPICH 5 and Intel MPI do), use Fastpath's mpicc with the mpiexec and the libraries of \
             {peer}: --peer {peer}=<path of Fastpath's mpicc>,<path of {peer}'s mpiexec> \
             --peer-env {peer}:LD_LIBRARY_PATH=<folder of {peer}'s libraries>"
        )
    })
}

fn parse_peer(word: &str) -> Result<ComparedMpi> {
    let wrong = || format!("--peer {word}: expected NAME=MPICC[,MPIEXEC]");
    let (name, rest) = word.split_once('=').with_context(wrong)?;
    let (mpicc, mpiexec) = match rest.split_once(',') {
        Some((mpicc, mpiexec)) => (mpicc, Some(mpiexec)),
        None => (rest, None),
    };
    if name.is_empty() || name.contains(':') || mpicc.is_empty() || mpiexec == Some("") {
        bail!(wrong());
    }
    Ok(ComparedMpi::new(name, Path::new(mpicc), mpiexec.map(Path::new)))
}

fn find_peer<'a, 'b>(
    peers: &'a mut [ComparedMpi], option: &str, word: &'b str,
) -> Result<(&'a mut ComparedMpi, &'b str)> {
    let (name, rest) = word
        .split_once(':')
        .with_context(|| format!("{option} {word}: expected the name of a peer before `:`"))?;
    let peer = peers.iter_mut().find(|p| p.name == name);
    let peer = peer.with_context(|| format!("{option} {word}: no --peer has the name `{name}`"))?;
    Ok((peer, rest))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|w| (*w).to_owned()).collect()
    }

    #[test]
    fn remedy__is_one_line_and_only_where_it_is_known() {
        let root = "the job failed: exit code 1\n  prterun has detected an attempt to run as \
            root.\n  more";
        let remedy = find_remedy("ompi", root).unwrap();
        assert!(remedy.contains("--peer-arg ompi:--allow-run-as-root") && !remedy.contains('\n'));
        let none = "cannot run /opt/intel/bin/mpicc: No such file or directory (os error 2)";
        let remedy = find_remedy("impi", none).unwrap();
        assert!(remedy.contains("/opt/intel/bin/mpicc") && remedy.contains("--peer impi="));
        let launcher = "cannot run /opt/intel/bin/mpiexec: No such file or directory (os error 2)";
        assert_eq!(find_remedy("impi", launcher), None);
        assert_eq!(find_remedy("x", "the job failed: exit code 1"), None);
    }

    #[test]
    fn launcher__lies_beside_the_compiler_unless_named() {
        let words = PeerOptions {
            peer: strings(&["a=/opt/a/bin/mpicc", "b=/opt/b/bin/mpicc,/opt/c/mpirun"]),
            ..PeerOptions::default()
        };
        let peers = words.parse().unwrap();
        assert_eq!(peers[0].mpiexec, Path::new("/opt/a/bin/mpiexec"));
        assert_eq!(peers[1].mpiexec, Path::new("/opt/c/mpirun"));
    }

    #[test]
    fn file__is_read_like_the_command_line() {
        let mut words = PeerOptions::default();
        let text = "# installed by \
            hand\n\n--peer=x=/opt/x/mpicc\n--peer-env=x:LD_LIBRARY_PATH=/a:/b\n\
                    --peer-arg-fit=x:--bind-to,core\n--peer-arg-crowded \
                    x:--map-by,:OVERSUBSCRIBE\n--peer-arg=x:-q\n";
        words.add_file(text).unwrap();
        let peers = words.parse().unwrap();
        let peer = &peers[0];
        assert_eq!(peer.environment, [("LD_LIBRARY_PATH".to_owned(), "/a:/b".to_owned())]);
        assert_eq!(peer.list_arguments_on(2, 2), ["-q", "--bind-to", "core"]);
        assert_eq!(peer.list_arguments_on(3, 2), ["-q", "--map-by", ":OVERSUBSCRIBE"]);
    }

    #[test]
    fn words__of_another_shape_are_refused_and_named() {
        for (peer, environment, part) in [
            ("mpicc", None, "NAME=MPICC"),
            ("=mpicc", None, "NAME=MPICC"),
            ("a=", None, "NAME=MPICC"),
            ("a=x,", None, "NAME=MPICC"),
            ("a=x", Some("b:V=1"), "no --peer has the name `b`"),
            ("a=x", Some("a:V"), "VAR=VALUE"),
            ("a=x", Some("aV=1"), "before `:`"),
        ] {
            let words = PeerOptions {
                peer: strings(&[peer]),
                peer_env: environment.map(str::to_owned).into_iter().collect(),
                ..PeerOptions::default()
            };
            let error = words.parse().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let mut words = PeerOptions::default();
        let error = words.add_file("--peer=a=x\n--pear=b=y").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("--pear"), "{error}");
        let words = PeerOptions { peer: strings(&["a=x", "a=y"]), ..PeerOptions::default() };
        assert!(words.parse().unwrap_err().to_string().contains("two peers"));
    }
}
