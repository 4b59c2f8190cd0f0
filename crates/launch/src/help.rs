//! The launcher's help.

/// Text of `--help`.
pub const HELP: &str = "\
mpiexec starts an MPI program on this node.

  mpiexec -n N [options] PROGRAM [ARGUMENTS] [: -n N [options] PROGRAM [ARGUMENTS]]...

Which and how many
  -n N, -np N            number of ranks of the program that follows (1)
  :                      another program of the same job; ranks are counted through
  --host localhost:N     accepted; gives the number of ranks where -n is missing

What they get
  -wdir DIR              folder to start in, for the program that follows
  -x NAME[=VALUE]        set or pass on a variable for all ranks
  -genv NAME VALUE       set a variable for all ranks
  -env NAME VALUE        set a variable for the program that follows
  --virtual-host NAME    the ranks of the program that follows count as being on a host of
                         this name: they share memory with ranks of the same name only, and
                         reach others by an adapter. They start here; a program that enters a
                         namespace may stand before theirs
  Standard input goes to rank 0, the others read /dev/null. FASTPATH_RANK and
  FASTPATH_SIZE tell scripts which rank they are.

Output and end
  -l, --tag-output       put [RANK] before each line; lines are never torn
  --timeout SECONDS      end the job after this time, say what each rank was doing, exit 124;
                         a job that SIGTERM ends says it too

Processors
  --bind-to none|core|numa
                         by default each rank is bound to a core of its own when there
                         are several ranks and enough cores that no other job has bound
                         to, and floats otherwise; OMP_NUM_THREADS cores a rank, if set
  --report-bindings      say how ranks are bound

  --oversubscribe, --allow-run-as-root    accepted; always so
  --version, --help

Exit code: 0 when every rank ended with 0; else that of the first rank that failed,
128 + N for signal N; 124 after a timeout; 2 for a wrong command line, 126 for a
program that cannot be run, 127 for one that is not there; 1 for anything else, such as
output that cannot be written.
";
