//! Command lines from practice.

use super::spec;

/// Lines from the manuals of Open MPI, MPICH and Intel MPI, and from job scripts of LAMMPS, OSU's and Intel's
/// benchmarks, HPL, HPCC, GROMACS, OpenFOAM, Quantum ESPRESSO, NAMD and others. A row has the line, the ranks of each
/// program, the first program's words, and the number of notices about options without effect.
const TYPED: &[(&str, &[usize], &str, usize)] = &[
    // Open MPI.
    ("-np 4 ./a.out", &[4], "./a.out", 0),
    ("--np 4 --oversubscribe ./a.out", &[4], "./a.out", 0),
    ("-np 2 --hostfile hosts4 ./hello", &[2], "./hello", 0),
    ("--hostfile hosts4 ./hello", &[4], "./hello", 0),
    ("-H localhost,localhost -np 2 ./ring", &[2], "./ring", 0),
    ("--host localhost:8 --map-by ppr:4:package ./prog", &[8], "./prog", 0),
    ("-np 8 --map-by socket --bind-to core --report-bindings ./prog", &[8], "./prog", 0),
    ("-np 4 --map-by socket:PE=2 --bind-to core --rank-by core ./hybrid", &[4], "./hybrid", 0),
    ("-np 2 --map-by ppr:1:socket:pe=4 -x OMP_NUM_THREADS=4 ./hybrid", &[2], "./hybrid", 0),
    ("--map-by ppr:2:node --mca pml ucx -x UCX_NET_DEVICES=mlx5_0:1 ./osu_bw", &[2], "./osu_bw", 1),
    ("-np 2 --mca btl self,vader,tcp --mca btl_tcp_if_include eth0 ./a.out", &[2], "./a.out", 1),
    ("--mca btl ^openib -np 4 --allow-run-as-root ./a.out", &[4], "./a.out", 1),
    ("-np 4 --mca rmaps_base_oversubscribe 1 --mca orte_base_help_aggregate 0 ./t", &[4], "./t", 1),
    ("-np 4 --use-hwthread-cpus --bind-to hwthread ./a.out", &[4], "./a.out", 0),
    ("-np 2 --display-map --display-allocation --tag-output hostname", &[2], "hostname", 0),
    ("-np 2 --output-filename log --merge-stderr-to-stdout ./a.out", &[2], "./a.out", 0),
    ("-np 2 --output tag,timestamp --display bindings ./a.out", &[2], "./a.out", 0),
    ("-np 1 ./master : -np 3 ./worker", &[1, 3], "./master", 0),
    ("--np 4 --timeout 60 --get-stack-traces --report-state-on-timeout ./t", &[4], "./t", 1),
    ("-np 4 --stdin all --personality ompi --prefix /opt/openmpi ./a.out", &[4], "./a.out", 2),
    ("-np 4 --nooversubscribe --bynode -nolocal ./a.out", &[4], "./a.out", 1),
    (
        "-np 4 --bind-to none -x LD_LIBRARY_PATH -x PATH python -m mpi4py script.py",
        &[4],
        "python -m mpi4py script.py",
        0,
    ),
    (
        "-np 4 --mca btl_vader_single_copy_mechanism none python3 train.py -n 5",
        &[4],
        "python3 train.py -n 5",
        1,
    ),
    ("-N 2 --bind-to l3cache ./a.out", &[2], "./a.out", 0),
    ("-np 2 --bind-to numa:overload-allowed --cpus-per-rank 2 ./a.out", &[2], "./a.out", 0),
    ("-np 4 -am ft-enable-mpi --enable-recovery ./ft", &[4], "./ft", 1),
    ("--do-not-launch --display map -np 4 true", &[4], "true", 0),
    ("--report-pid - -np 2 ./a.out", &[2], "./a.out", 0),
    ("-np 2 --xterm 0,1 gdb ./a.out", &[2], "gdb ./a.out", 1),
    ("-np 4 -rf ranks ./a.out", &[4], "./a.out", 1),
    // MPICH, Hydra.
    ("-n 4 ./cpi", &[4], "./cpi", 0),
    ("-f hosts4 -n 4 ./cpi", &[4], "./cpi", 0),
    ("-f machines ./cpi", &[5], "./cpi", 0),
    ("-hosts localhost,127.0.0.1 -ppn 2 -n 4 ./app", &[4], "./app", 1),
    ("-n 2 -genv FOO bar -genvlist PATH,HOME ./app", &[2], "./app", 0),
    ("-genvall -n 2 ./app : -env A 1 -n 2 ./app2", &[2, 2], "./app", 0),
    ("-genvnone -env PATH /bin -n 1 env", &[1], "env", 0),
    ("-n 4 -bind-to core -map-by socket ./app", &[4], "./app", 0),
    ("-n 4 -bind-to numa:2 ./app", &[4], "./app", 0),
    ("-n 3 -bind-to user:0+2,1+4,3 ./app", &[3], "./app", 0),
    ("-n 2 -prepend-rank -print-all-exitcodes ./app", &[2], "./app", 0),
    ("-l -outfile-pattern out.%r -errfile-pattern err.%r -n 2 ./app", &[2], "./app", 0),
    ("-launcher ssh -iface eth0 -disable-auto-cleanup -n 2 ./app", &[2], "./app", 2),
    ("-bootstrap fork -rmk slurm -verbose -n 2 ./app", &[2], "./app", 2),
    ("-configfile programs", &[1, 3], "first a b", 0),
    ("-usize INFINITE -n 1 ./spawner", &[1], "./spawner", 0),
    ("-n 2 -host localhost -wdir /tmp -path /opt/bin:/bin prog : -n 1 other", &[2, 1], "prog", 0),
    ("-soft 1:8:2 -arch x86_64 -file info ./app", &[7], "./app", 1),
    // Intel MPI.
    (
        "-n 2 -ppn 1 -genv I_MPI_DEBUG=5 -genv I_MPI_FABRICS shm IMB-MPI1 pingpong",
        &[2],
        "IMB-MPI1 pingpong",
        1,
    ),
    ("-perhost 4 -n 8 -hostfile hosts4 ./xhpl", &[8], "./xhpl", 1),
    ("-machinefile machines -n 5 ./app", &[5], "./app", 0),
    ("-print-rank-map -l -s all -n 2 ./app", &[2], "./app", 0),
    ("-rr -n 4 -binding pin=yes;cell=unit ./app", &[4], "./app", 1),
    ("-check_mpi -n 2 ./app", &[2], "./app", 1),
    ("-gtool gdb:0 -n 2 ./app", &[2], "./app", 0),
    ("-genvexcl LD_PRELOAD -prepend-timestamp -n 2 ./app", &[2], "./app", 0),
    // Job scripts.
    ("-np 4 lmp -sf omp -pk omp 2 -in in.lj", &[4], "lmp -sf omp -pk omp 2 -in in.lj", 0),
    (
        "-n 4 --bind-to core --map-by slot lmp_mpi -in in.eam -log none",
        &[4],
        "lmp_mpi -in in.eam -log none",
        0,
    ),
    (
        "-np 2 -hostfile hosts4 -ppn 1 ./osu_latency -m 1:4194304 -x 100",
        &[2],
        "./osu_latency -m 1:4194304 -x 100",
        1,
    ),
    ("-n 2 --map-by ppr:1:socket ./osu_bibw D D", &[2], "./osu_bibw D D", 0),
    ("-np 4 --mca mpi_yield_when_idle 1 ./hpcc", &[4], "./hpcc", 1),
    (
        "-np 16 --bind-to core gmx_mpi mdrun -ntomp 1 -s topol.tpr",
        &[16],
        "gmx_mpi mdrun -ntomp 1 -s topol.tpr",
        0,
    ),
    ("-np 4 simpleFoam -parallel", &[4], "simpleFoam -parallel", 0),
    ("-np 8 -q pw.x -nk 2 -in scf.in", &[8], "pw.x -nk 2 -in scf.in", 0),
    ("--oversubscribe -n 8 -- namd2 --stdin conf", &[8], "namd2 --stdin conf", 0),
];

#[test]
fn lines_as_people_type_them__are_understood() {
    for (line, ranks, program, notices) in TYPED {
        let s = spec(line);
        let counts: Vec<usize> = s.apps.iter().map(|a| a.ranks).collect();
        assert_eq!(&counts, ranks, "{line}");
        let words: Vec<&str> = s.apps[0].argv.iter().map(|w| w.to_str().unwrap()).collect();
        assert_eq!(words.join(" "), *program, "{line}");
        assert_eq!(s.notices.len(), *notices, "{line}: {:?}", s.notices);
    }
}
