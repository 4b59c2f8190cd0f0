#![allow(non_snake_case)]

use super::*;
use std::collections::BTreeMap;

/// What one launcher, or a step on the way, does to the environment. Recorded from Hydra 4.0.2 and 5.0.2, gforker
/// 5.0.2, Intel MPI 2021, PRRTE 3.0.14 with OpenPMIx 5.0.11, Open MPI 4.1.4 and Slurm 22.05.8, alone and in each other;
/// Flux's are from its source (shell/shell.c, shell/task.c, shell/pmi/pmi.c, broker/runat.c).
#[derive(Clone)]
enum Layer {
    Sets(String),
    /// Our `mpiexec`, with two ranks.
    Ours,
    /// A Flux broker starts its first program.
    FluxBroker,
}
use Layer::{FluxBroker, Ours, Sets};

const HYDRA: Option<&str> = Some("hydra_pmi_proxy");
const SLURM: Option<&str> = Some("slurmstepd");
const FLUX: Option<&str> = Some("flux-shell");

fn sets(text: String) -> Layer {
    Sets(text)
}

fn hydra(rank: usize, size: usize) -> Layer {
    sets(format!(
        "HYDI_CONTROL_FD=7 PMI_HOSTNAME=vm MPI_LOCALNRANKS={size} MPI_LOCALRANKID={rank} \
         PMI_RANK={rank} PMI_FD=9 \
         PMI_SIZE={size}"
    ))
}

fn hydra_4(rank: usize, size: usize) -> Layer {
    sets(format!(
        "HYDI_CONTROL_FD=7 MPIR_CVAR_CH3_INTERFACE_HOSTNAME=vm MPI_LOCALNRANKS={size} \
         MPI_LOCALRANKID={rank} PMI_FD=6 \
         PMI_RANK={rank} PMI_SIZE={size}"
    ))
}

fn intel(rank: usize, size: usize) -> Layer {
    sets(format!(
        "HYDRA_BSTRAP_PROXY_ID=0 HYDRA_LAUNCH_TYPE=2 I_MPI_HYDRA_UUID=f9580000 \
         MPI_LOCALNRANKS={size} \
         MPI_LOCALRANKID={rank} PMI_SIZE={size} PMI_RANK={rank} PMI_FD=9"
    ))
}

/// `mpiexec.hydra -pmi-port`.
fn hydra_port(rank: usize, size: usize) -> Layer {
    sets(format!(
        "HYDI_CONTROL_FD=7 MPI_LOCALNRANKS={size} MPI_LOCALRANKID={rank} PMI_HOSTNAME=vm \
         PMI_ID={rank} \
         PMI_PORT=vm:41029"
    ))
}

fn gforker(rank: usize, size: usize) -> Layer {
    sets(format!(
        "MPI_APPNUM=0 MPI_UNIVERSE_SIZE=-1 PMI_DEBUG=0 PMI_FD=8 PMI_RANK={rank} PMI_SIZE={size}"
    ))
}

/// `prterun`, which tells no size.
fn prterun(rank: usize) -> Layer {
    sets(format!(
        "PRTE_LAUNCHED=1 PMIX_HOSTNAME=vm PMIX_NAMESPACE=prterun-vm-2620@1 PMIX_RANK={rank} \
         PMIX_SERVER_TMPDIR=/tmp/prtrn.2620"
    ))
}

/// `mpirun` of Open MPI 5: PRRTE and Open MPI's own variables.
fn open_mpi(rank: usize, size: usize) -> Layer {
    sets(format!(
        "PRTE_LAUNCHED=1 PMIX_HOSTNAME=vm PMIX_NAMESPACE=prterun-vm-22784@1 PMIX_RANK={rank} \
         PMIX_SERVER_TMPDIR=/tmp/ompi.22784 OMPI_FILE_LOCATION=/tmp/ompi.22784/1/{rank} \
         OMPI_COMM_WORLD_RANK={rank} \
         OMPI_COMM_WORLD_SIZE={size} OMPI_COMM_WORLD_LOCAL_RANK={rank} \
         OMPI_COMM_WORLD_LOCAL_SIZE={size} \
         OMPI_UNIVERSE_SIZE=2 OMPI_WORLD_SIZE={size}"
    ))
}

/// `mpirun` of Open MPI 4.
fn orte(rank: usize, size: usize) -> Layer {
    sets(format!(
        "PMIX_HOSTNAME=vm PMIX_ID=860422145.{rank} PMIX_NAMESPACE=860422145 PMIX_RANK={rank} \
         PMIX_SERVER_TMPDIR=/tmp/ompi.vm.0/pid.24503 \
         OMPI_FILE_LOCATION=/tmp/ompi.vm.0/pid.24503/0/{rank} \
         OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE={size} OMPI_UNIVERSE_SIZE=2 \
         OMPI_APP_CTX_NUM_PROCS={size}"
    ))
}

/// `srun --mpi=none`.
fn srun(rank: usize, size: usize) -> Layer {
    sets(format!(
        "SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_NTASKS={size} SLURM_NPROCS={size} \
         SLURM_STEP_NUM_TASKS={size} SLURM_PROCID={rank} SLURM_LOCALID={rank} \
         SLURM_TASK_PID=23298 SLURM_GTIDS=0,1"
    ))
}

/// What `srun --mpi=pmi2` sets more.
fn pmi2(rank: usize, size: usize) -> Layer {
    sets(format!(
        "SLURM_MPI_TYPE=pmi2 PMI_FD=11 PMI_JOBID=2.0 PMI_RANK={rank} PMI_SIZE={size}"
    ))
}

/// What `srun --mpi=pmix` sets more.
fn pmix(rank: usize) -> Layer {
    sets(format!(
        "SLURM_MPI_TYPE=pmix PMIX_HOSTNAME=vm PMIX_NAMESPACE=slurm.pmix.3.0 PMIX_RANK={rank} \
         PMIX_SERVER_TMPDIR=/spool/pmix.3.0"
    ))
}

/// The script of `sbatch -n 4`.
fn sbatch() -> Layer {
    sets(
        "SLURM_JOB_ID=4 SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_PROCID=0 SLURM_LOCALID=0 \
         SLURM_NODEID=0 SLURM_GTIDS=0 \
         SLURM_TASK_PID=26698"
            .into(),
    )
}

/// The same of Slurm 26.05 (slurmstepd/task.c), submitted from inside a step of two tasks.
fn sbatch_numbered() -> Layer {
    sets(
        "SLURM_JOB_ID=4 SLURM_STEP_ID=-5 SLURM_STEPID=-5 SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=4 \
         SLURM_PROCID=0 \
         SLURM_LOCALID=0 SLURM_GTIDS=0 SLURM_TASK_PID=26698"
            .into(),
    )
}

/// The shell of `salloc -n 4` where it runs on the login node.
fn salloc() -> Layer {
    sets("SLURM_JOB_ID=5 SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_JOB_NAME=interactive".into())
}

/// The shell of `salloc -n 4` where it runs as a step of its own.
fn salloc_step() -> Layer {
    sets(
        "SLURM_JOB_ID=54 SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_STEP_ID=4294967290 \
         SLURM_STEPID=4294967290 \
         SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_TASK_PID=8644 \
         SLURM_MPI_TYPE=none"
            .into(),
    )
}

/// `flux run -o pmi=off`.
fn flux(rank: usize, size: usize) -> Layer {
    sets(format!(
        "FLUX_URI=local:///run/flux/local FLUX_JOB_ID=f9F7 FLUX_JOB_SIZE={size} FLUX_JOB_NNODES=1 \
         FLUX_TASK_RANK={rank} FLUX_TASK_LOCAL_ID={rank}"
    ))
}

/// What its default, a PMI-1 server, sets more.
fn flux_pmi(rank: usize, size: usize) -> Layer {
    sets(format!(
        "PMI_FD=12 PMI_RANK={rank} PMI_SIZE={size} FLUX_PMI_LIBRARY_PATH=/usr/lib/flux/libpmi.so"
    ))
}

/// What its PMIx server sets more.
fn flux_pmix(rank: usize) -> Layer {
    sets(format!("PMIX_NAMESPACE=f9F7 PMIX_RANK={rank}"))
}

fn environment(layers: &[Layer]) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    for layer in layers {
        let add = match layer {
            Sets(text) => text.as_str(),
            Ours => {
                env.retain(|name: &String, _| !is_identity(name));
                "FASTPATH_INTERNAL_JOB=1,60,0,31668,02970de3d697403d FASTPATH_RANK=0 \
                 FASTPATH_SIZE=2"
            }
            FluxBroker => {
                let blocked = ["FLUX_JOB_", "FLUX_TASK_", "PMI_", "PMIX_", "SLURM_"];
                env.retain(|name, _| !blocked.iter().any(|prefix| name.starts_with(prefix)));
                ""
            }
        };
        let pairs = add
            .split_whitespace()
            .filter_map(|pair| pair.split_once('='));
        env.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    env
}

fn place(env: &BTreeMap<String, String>, peer: Option<&str>) -> Place {
    detect(&|name| env.get(name).cloned(), peer)
}

fn describe(place: &Place) -> String {
    match place {
        Place::Own => "own".into(),
        Place::Alone(_) => "alone".into(),
        Place::Several(claim) => format!("{claim} ({}={})", claim.variable, claim.value),
    }
}

/// Layers from the outermost to the innermost, what `PMI_FD` leads to, and what must be found.
type Row = (&'static str, Vec<Layer>, Option<&'static str>, &'static str);

const HYDRA_2: &str = "rank 0 of 2 under Hydra (mpiexec of MPICH or Intel MPI) (PMI_SIZE=2)";
const OPEN_MPI_2: &str = "rank 0 of 2 under PRRTE (mpirun of Open MPI) (OMPI_COMM_WORLD_SIZE=2)";
const PRTERUN: &str = "rank 0 of an unknown number under PRRTE (mpirun of Open MPI) (PMIX_RANK=0)";
const SRUN_2: &str = "rank 0 of 2 under srun of Slurm (SLURM_STEP_NUM_TASKS=2)";
const SRUN_PMI_2: &str = "rank 0 of 2 under srun of Slurm (PMI_SIZE=2)";
const FLUX_2: &str = "rank 0 of 2 under Flux (FLUX_JOB_SIZE=2)";
const FLUX_PMI_2: &str = "rank 0 of 2 under Flux (PMI_SIZE=2)";

/// One launcher with two ranks.
fn rows_of_one_launcher() -> Vec<Row> {
    vec![
        ("Hydra 5", vec![hydra(0, 2)], HYDRA, HYDRA_2),
        ("Hydra 4", vec![hydra_4(0, 2)], HYDRA, HYDRA_2),
        ("Intel MPI", vec![intel(0, 2)], HYDRA, HYDRA_2),
        (
            "Hydra, another pid namespace",
            vec![hydra(0, 2)],
            Some(""),
            HYDRA_2,
        ),
        (
            "Hydra, descriptors closed on the way",
            vec![hydra(0, 2)],
            None,
            HYDRA_2,
        ),
        (
            "Hydra with PMI_PORT",
            vec![hydra_port(0, 2)],
            None,
            "rank 0 of an unknown number under Hydra (mpiexec of MPICH or Intel MPI) (PMI_ID=0)",
        ),
        (
            "gforker",
            vec![gforker(0, 2)],
            Some("mpiexec.gforker"),
            "rank 0 of 2 under a launcher that speaks PMI (PMI_SIZE=2)",
        ),
        ("Open MPI 5", vec![open_mpi(0, 2)], None, OPEN_MPI_2),
        ("Open MPI 4", vec![orte(0, 2)], None, OPEN_MPI_2),
        ("prterun", vec![prterun(0)], None, PRTERUN),
        ("srun --mpi=none", vec![srun(0, 2)], None, SRUN_2),
        (
            "srun --mpi=pmi2",
            vec![srun(0, 2), pmi2(0, 2)],
            SLURM,
            SRUN_PMI_2,
        ),
        ("srun --mpi=pmix", vec![srun(0, 2), pmix(0)], None, SRUN_2),
        (
            "srun in a batch script",
            vec![sbatch(), srun(0, 2)],
            None,
            SRUN_2,
        ),
        (
            "srun from salloc",
            vec![salloc_step(), srun(0, 2)],
            None,
            SRUN_2,
        ),
        ("Flux", vec![flux(0, 2), flux_pmi(0, 2)], FLUX, FLUX_PMI_2),
        ("Flux, pmi=off", vec![flux(0, 2)], None, FLUX_2),
        (
            "Flux, pmi=pmix",
            vec![flux(0, 2), flux_pmix(0)],
            None,
            FLUX_2,
        ),
    ]
}

/// Two ranks in a launcher inside another one.
fn rows_of_nested_launchers() -> Vec<Row> {
    vec![
        (
            "Hydra in srun none",
            vec![srun(0, 2), hydra(0, 2)],
            HYDRA,
            HYDRA_2,
        ),
        (
            "Hydra in srun pmi2",
            vec![srun(0, 1), pmi2(0, 1), hydra(0, 2)],
            HYDRA,
            HYDRA_2,
        ),
        (
            "Hydra in srun pmix",
            vec![srun(0, 1), pmix(0), hydra(0, 2)],
            HYDRA,
            HYDRA_2,
        ),
        (
            "Hydra over srun's daemons",
            vec![sbatch(), srun(0, 1), hydra(0, 2)],
            HYDRA,
            HYDRA_2,
        ),
        (
            "Hydra in Open MPI",
            vec![open_mpi(0, 1), hydra(0, 2)],
            HYDRA,
            HYDRA_2,
        ),
        (
            "Intel in Hydra",
            vec![hydra(0, 1), intel(0, 2)],
            HYDRA,
            HYDRA_2,
        ),
        (
            "Hydra in Flux",
            vec![flux(0, 1), flux_pmi(0, 1), hydra(0, 2)],
            HYDRA,
            HYDRA_2,
        ),
        (
            "Hydra with PMI_PORT in Hydra, whose PMI_FD is still open",
            vec![hydra(0, 1), hydra_port(0, 2)],
            HYDRA,
            "rank 0 of an unknown number under Hydra (mpiexec of MPICH or Intel MPI) (PMI_ID=0)",
        ),
        (
            "Open MPI in Hydra",
            vec![hydra(0, 1), open_mpi(0, 2)],
            None,
            OPEN_MPI_2,
        ),
        (
            "Open MPI in Intel",
            vec![intel(0, 1), open_mpi(0, 2)],
            None,
            OPEN_MPI_2,
        ),
        (
            "Open MPI 4 in Hydra",
            vec![hydra(0, 1), orte(0, 2)],
            None,
            OPEN_MPI_2,
        ),
        (
            "Open MPI 5 in 4",
            vec![orte(0, 1), open_mpi(0, 2)],
            None,
            OPEN_MPI_2,
        ),
        (
            "Open MPI in srun none",
            vec![srun(0, 1), open_mpi(0, 2)],
            None,
            OPEN_MPI_2,
        ),
        (
            "Open MPI in srun pmi2",
            vec![srun(0, 1), pmi2(0, 1), open_mpi(0, 2)],
            None,
            OPEN_MPI_2,
        ),
        (
            "Open MPI in srun pmix",
            vec![srun(0, 1), pmix(0), open_mpi(0, 2)],
            None,
            OPEN_MPI_2,
        ),
        (
            "Open MPI in a batch script",
            vec![sbatch(), open_mpi(0, 2)],
            None,
            OPEN_MPI_2,
        ),
        (
            "prterun in Hydra",
            vec![hydra(0, 1), prterun(0)],
            None,
            PRTERUN,
        ),
        (
            "prterun in Open MPI",
            vec![open_mpi(0, 1), prterun(0)],
            None,
            PRTERUN,
        ),
        (
            "srun none in Hydra",
            vec![hydra(0, 1), srun(0, 2)],
            None,
            SRUN_2,
        ),
        (
            "srun pmi2 in Hydra",
            vec![hydra(0, 1), srun(0, 2), pmi2(0, 2)],
            SLURM,
            SRUN_PMI_2,
        ),
        (
            "srun pmix in Hydra",
            vec![hydra(0, 1), srun(0, 2), pmix(0)],
            None,
            SRUN_2,
        ),
        (
            "srun none in Open MPI",
            vec![open_mpi(0, 1), srun(0, 2)],
            None,
            SRUN_2,
        ),
        (
            "srun pmi2 in Open MPI",
            vec![open_mpi(0, 1), srun(0, 2), pmi2(0, 2)],
            SLURM,
            SRUN_PMI_2,
        ),
        (
            "srun pmix in Open MPI",
            vec![open_mpi(0, 1), srun(0, 2), pmix(0)],
            None,
            SRUN_2,
        ),
        (
            "Flux in srun",
            vec![
                srun(0, 4),
                pmi2(0, 4),
                FluxBroker,
                flux(0, 2),
                flux_pmi(0, 2),
            ],
            FLUX,
            FLUX_PMI_2,
        ),
        (
            "Open MPI in Flux",
            vec![flux(0, 1), flux_pmi(0, 1), open_mpi(0, 2)],
            None,
            OPEN_MPI_2,
        ),
    ]
}

/// A rank of ours has started another launcher, which hands our variable on.
fn rows_inside_of_ours() -> Vec<Row> {
    vec![
        ("Hydra in ours", vec![Ours, hydra(0, 2)], HYDRA, HYDRA_2),
        (
            "Hydra in ours, descriptors closed",
            vec![Ours, hydra(0, 2)],
            None,
            HYDRA_2,
        ),
        ("Intel in ours", vec![Ours, intel(0, 2)], HYDRA, HYDRA_2),
        (
            "gforker in ours",
            vec![Ours, gforker(0, 2)],
            Some("mpiexec.gforker"),
            "rank 0 of 2 under a launcher that speaks PMI (PMI_SIZE=2)",
        ),
        (
            "Open MPI in ours",
            vec![Ours, open_mpi(0, 2)],
            None,
            OPEN_MPI_2,
        ),
        ("prterun in ours", vec![Ours, prterun(0)], None, PRTERUN),
        ("srun none in ours", vec![Ours, srun(0, 2)], None, SRUN_2),
        (
            "srun pmi2 in ours",
            vec![Ours, srun(0, 2), pmi2(0, 2)],
            SLURM,
            SRUN_PMI_2,
        ),
        (
            "srun pmix in ours",
            vec![Ours, srun(0, 2), pmix(0)],
            None,
            SRUN_2,
        ),
        (
            "Flux in ours",
            vec![Ours, flux(0, 2), flux_pmi(0, 2)],
            FLUX,
            FLUX_PMI_2,
        ),
        (
            "Hydra in ours in Hydra",
            vec![hydra(0, 2), Ours, hydra(0, 2)],
            HYDRA,
            HYDRA_2,
        ),
        (
            "srun in ours in srun",
            vec![srun(0, 4), Ours, srun(0, 2)],
            None,
            SRUN_2,
        ),
        (
            "Hydra of one rank in ours",
            vec![Ours, hydra(0, 1)],
            HYDRA,
            "alone",
        ),
        (
            "srun of one task in ours",
            vec![Ours, srun(0, 1)],
            None,
            "alone",
        ),
        (
            "a batch script from ours",
            vec![Ours, sbatch()],
            None,
            "alone",
        ),
    ]
}

/// Our own launcher inside of another one. The outer launcher's PMI_FD is still open in our ranks.
fn rows_of_ours() -> Vec<Row> {
    vec![
        ("ours", vec![Ours], None, "own"),
        ("ours in Hydra", vec![hydra(0, 2), Ours], HYDRA, "own"),
        (
            "ours in Hydra with PMI_PORT",
            vec![hydra_port(0, 2), Ours],
            None,
            "own",
        ),
        ("ours in Open MPI", vec![open_mpi(0, 2), Ours], None, "own"),
        ("ours in Open MPI 4", vec![orte(0, 2), Ours], None, "own"),
        ("ours in srun none", vec![srun(0, 2), Ours], None, "own"),
        (
            "ours in srun pmi2",
            vec![srun(0, 2), pmi2(0, 2), Ours],
            SLURM,
            "own",
        ),
        (
            "ours in srun pmix",
            vec![srun(0, 2), pmix(0), Ours],
            None,
            "own",
        ),
        ("ours in a batch script", vec![sbatch(), Ours], None, "own"),
        ("ours from salloc", vec![salloc(), Ours], None, "own"),
        (
            "ours in an interactive step",
            vec![salloc_step(), Ours],
            None,
            "own",
        ),
        (
            "ours in Flux",
            vec![flux(0, 2), flux_pmi(0, 2), Ours],
            FLUX,
            "own",
        ),
        ("ours in ours", vec![Ours, Ours], None, "own"),
        (
            "ours in Hydra in ours",
            vec![Ours, hydra(0, 2), Ours],
            HYDRA,
            "own",
        ),
    ]
}

fn rows_of_single_processes() -> Vec<Row> {
    vec![
        ("no launcher", vec![], None, "alone"),
        ("Hydra of one rank", vec![hydra(0, 1)], HYDRA, "alone"),
        ("Open MPI of one rank", vec![open_mpi(0, 1)], None, "alone"),
        ("srun of one task", vec![srun(0, 1)], None, "alone"),
        (
            "srun pmi2 of one task",
            vec![srun(0, 1), pmi2(0, 1)],
            SLURM,
            "alone",
        ),
        (
            "srun pmix of one task",
            vec![srun(0, 1), pmix(0)],
            None,
            "alone",
        ),
        (
            "Flux of one task",
            vec![flux(0, 1), flux_pmi(0, 1)],
            FLUX,
            "alone",
        ),
        ("a batch script", vec![sbatch()], None, "alone"),
        (
            "a numbered batch script",
            vec![sbatch_numbered()],
            None,
            "alone",
        ),
        ("salloc", vec![salloc()], None, "alone"),
        ("salloc with a step", vec![salloc_step()], None, "alone"),
        (
            "a Flux batch script in srun",
            vec![srun(0, 4), pmi2(0, 4), FluxBroker],
            None,
            "alone",
        ),
        // The innermost launcher is certain.
        (
            "Hydra of one rank in srun of four",
            vec![srun(0, 4), hydra(0, 1)],
            HYDRA,
            "alone",
        ),
        (
            "srun pmi2 of one in Open MPI of two",
            vec![open_mpi(0, 2), srun(0, 1), pmi2(0, 1)],
            SLURM,
            "alone",
        ),
    ]
}

fn all_rows() -> Vec<Row> {
    [
        rows_of_one_launcher(),
        rows_of_nested_launchers(),
        rows_inside_of_ours(),
        rows_of_ours(),
        rows_of_single_processes(),
    ]
    .concat()
}

#[test]
fn detect__knows_the_launcher_of_every_recorded_environment() {
    let wrong: Vec<String> = all_rows()
        .iter()
        .filter_map(|(what, layers, peer, wanted)| {
            let found = describe(&place(&environment(layers), *peer));
            (found != *wanted).then(|| format!("{what}: {found}, wanted {wanted}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn detect__never_leaves_a_rank_of_several_alone() {
    // No other launcher lives: whatever tells of a second rank counts, in any order of nesting.
    let alone = [
        hydra(0, 1),
        open_mpi(0, 1),
        srun(0, 1),
        pmix(0),
        flux(0, 1),
        salloc_step(),
        sbatch(),
    ];
    let several = [
        hydra(0, 2),
        open_mpi(0, 2),
        srun(0, 2),
        flux(0, 2),
        gforker(0, 3),
        orte(0, 2),
    ];
    for inner in &several {
        for outer in &alone {
            let env = environment(&[outer.clone(), inner.clone()]);
            let found = place(&env, None);
            assert!(matches!(found, Place::Several(_)), "{env:?}: {found:?}");
        }
    }
    // The last rank too, where the size is not told or wrong.
    for layer in [
        hydra(3, 0),
        hydra(1, 1),
        prterun(1),
        hydra_port(1, 2),
        srun(1, 1),
        flux(1, 1),
    ] {
        let found = place(&environment(&[layer]), None);
        assert!(
            matches!(&found, Place::Several(c) if c.size.is_none()),
            "{found:?}"
        );
    }
}

#[test]
fn detect__is_told_to_leave_a_process_alone() {
    for layers in [vec![Ours], vec![hydra(0, 2)], vec![srun(0, 4)], vec![]] {
        for (value, is_asked) in [("1", true), ("yes", true), ("0", false), ("no", false)] {
            let mut env = environment(&layers);
            env.insert("FASTPATH_SINGLETON".into(), value.into());
            let found = place(&env, None);
            assert_eq!(
                found == Place::Alone(Alone::Asked),
                is_asked,
                "{env:?}: {found:?}"
            );
        }
    }
}

#[test]
fn detect__needs_a_launchers_mark_to_leave_our_own_job() {
    // A script may set such variables for a program that asks for them.
    let wrapper = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMI_RANK=0 PMI_SIZE=2 \
        SLURM_PROCID=0 SLURM_NTASKS=2";
    let env = environment(&[Ours, sets(wrapper.into())]);
    assert_eq!(place(&env, None), Place::Own);
}

#[test]
fn claim__cuts_long_values() {
    let env = environment(&[sets(format!("PMI_SIZE={}", "9".repeat(100_000)))]);
    let Place::Several(claim) = place(&env, None) else {
        panic!("a number too large is several")
    };
    assert_eq!(claim.size, None);
    assert!(claim.value.len() < 120, "{}", claim.value);
}

#[test]
fn identity__is_what_each_process_has_of_its_own() {
    for name in [
        "PMI_RANK",
        "PMI_FD",
        "PMIX_RANK",
        "PMIX_SERVER_URI41",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "SLURM_PROCID",
    ] {
        assert!(is_identity(name), "{name}");
    }
    for name in [
        "PATH",
        "SLURM_JOB_ID",
        "SLURM_NTASKS",
        "PMIX_MCA_psec",
        "OMPI_MCA_btl",
        "FLUX_URI",
        "I_MPI_ROOT",
    ] {
        assert!(!is_identity(name), "{name}");
    }
}

#[test]
fn fuzz__several_ranks_are_never_alone() {
    let rows = all_rows();
    let texts: Vec<Vec<u8>> = rows
        .iter()
        .map(|(_, layers, ..)| {
            let pairs = environment(layers).into_iter();
            let lines: Vec<String> = pairs
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            lines.join("\n").into_bytes()
        })
        .collect();
    let corpus: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    crate::mutate::run(&corpus, |input| {
        let text = String::from_utf8_lossy(input);
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        let env: BTreeMap<String, String> = pairs.map(|(n, v)| (n.into(), v.into())).collect();
        let number = |name: &str| env.get(name).and_then(|v| v.parse::<u64>().ok());
        let found = place(&env, None);
        if let Place::Alone(Alone::Unlaunched | Alone::OfOne(_)) = found {
            assert!(
                env.contains_key("PMI_PORT") || number("PMI_SIZE").is_none_or(|n| n == 1),
                "{env:?}"
            );
            assert!(number("FLUX_JOB_SIZE").is_none_or(|n| n == 1), "{env:?}");
            assert!(number("PMIX_RANK").is_none_or(|n| n == 0), "{env:?}");
            assert!(number("SLURM_PROCID").is_none_or(|n| n == 0), "{env:?}");
        }
    });
}
