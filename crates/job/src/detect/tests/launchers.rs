//! Environments that launchers leave to a process.

use super::super::is_identity;
use std::collections::BTreeMap;

/// Change of the environment by one launcher or an intermediate step. Recorded from Hydra 4.0.2 and 5.0.2, gforker
/// 5.0.2, Intel MPI 2021, PRRTE 3.0.14 with OpenPMIx 5.0.11, Open MPI 4.1.4 and Slurm 22.05.8, alone and nested. Flux's
/// are from its source (shell/shell.c, shell/task.c, shell/pmi/pmi.c, broker/runat.c).
#[derive(Clone)]
pub enum Layer {
    Sets(String),
    /// Our `mpiexec`, with two ranks.
    Ours,
    /// A Flux broker starts its first program.
    FluxBroker,
}
use Layer::{FluxBroker, Ours, Sets};

pub const HYDRA: Option<&str> = Some("hydra_pmi_proxy");
pub const SLURM: Option<&str> = Some("slurmstepd");
pub const FLUX: Option<&str> = Some("flux-shell");

pub fn sets(text: String) -> Layer {
    Sets(text)
}

pub fn hydra(rank: usize, size: usize) -> Layer {
    sets(format!(
        "HYDI_CONTROL_FD=7 PMI_HOSTNAME=vm MPI_LOCALNRANKS={size} MPI_LOCALRANKID={rank} \
         PMI_RANK={rank} PMI_FD=9 \
         PMI_SIZE={size}"
    ))
}

pub fn hydra_4(rank: usize, size: usize) -> Layer {
    sets(format!(
        "HYDI_CONTROL_FD=7 MPIR_CVAR_CH3_INTERFACE_HOSTNAME=vm MPI_LOCALNRANKS={size} \
         MPI_LOCALRANKID={rank} PMI_FD=6 \
         PMI_RANK={rank} PMI_SIZE={size}"
    ))
}

pub fn intel(rank: usize, size: usize) -> Layer {
    sets(format!(
        "HYDRA_BSTRAP_PROXY_ID=0 HYDRA_LAUNCH_TYPE=2 I_MPI_HYDRA_UUID=f9580000 \
         MPI_LOCALNRANKS={size} \
         MPI_LOCALRANKID={rank} PMI_SIZE={size} PMI_RANK={rank} PMI_FD=9"
    ))
}

/// `mpiexec.hydra -pmi-port`.
pub fn hydra_port(rank: usize, size: usize) -> Layer {
    sets(format!(
        "HYDI_CONTROL_FD=7 MPI_LOCALNRANKS={size} MPI_LOCALRANKID={rank} PMI_HOSTNAME=vm \
         PMI_ID={rank} \
         PMI_PORT=vm:41029"
    ))
}

pub fn gforker(rank: usize, size: usize) -> Layer {
    sets(format!(
        "MPI_APPNUM=0 MPI_UNIVERSE_SIZE=-1 PMI_DEBUG=0 PMI_FD=8 PMI_RANK={rank} PMI_SIZE={size}"
    ))
}

/// `prterun`, which sets no size.
pub fn prterun(rank: usize) -> Layer {
    sets(format!(
        "PRTE_LAUNCHED=1 PMIX_HOSTNAME=vm PMIX_NAMESPACE=prterun-vm-2620@1 PMIX_RANK={rank} \
         PMIX_SERVER_TMPDIR=/tmp/prtrn.2620"
    ))
}

/// `mpirun` of Open MPI 5: PRRTE and Open MPI's own variables.
pub fn open_mpi(rank: usize, size: usize) -> Layer {
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
pub fn orte(rank: usize, size: usize) -> Layer {
    sets(format!(
        "PMIX_HOSTNAME=vm PMIX_ID=860422145.{rank} PMIX_NAMESPACE=860422145 PMIX_RANK={rank} \
         PMIX_SERVER_TMPDIR=/tmp/ompi.vm.0/pid.24503 \
         OMPI_FILE_LOCATION=/tmp/ompi.vm.0/pid.24503/0/{rank} \
         OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE={size} OMPI_UNIVERSE_SIZE=2 \
         OMPI_APP_CTX_NUM_PROCS={size}"
    ))
}

/// `srun --mpi=none`.
pub fn srun(rank: usize, size: usize) -> Layer {
    sets(format!(
        "SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_NTASKS={size} SLURM_NPROCS={size} \
         SLURM_STEP_NUM_TASKS={size} SLURM_PROCID={rank} SLURM_LOCALID={rank} \
         SLURM_TASK_PID=23298 SLURM_GTIDS=0,1"
    ))
}

/// Variables that `srun --mpi=pmi2` adds.
pub fn pmi2(rank: usize, size: usize) -> Layer {
    sets(format!("SLURM_MPI_TYPE=pmi2 PMI_FD=11 PMI_JOBID=2.0 PMI_RANK={rank} PMI_SIZE={size}"))
}

/// Variables that `srun --mpi=pmix` adds.
pub fn pmix(rank: usize) -> Layer {
    sets(format!(
        "SLURM_MPI_TYPE=pmix PMIX_HOSTNAME=vm PMIX_NAMESPACE=slurm.pmix.1.0 PMIX_RANK={rank} \
         PMIX_SERVER_TMPDIR=/spool/pmix.3.0"
    ))
}

/// The script of `sbatch -n 4`.
pub fn sbatch() -> Layer {
    sets(
        "SLURM_JOB_ID=4 SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_PROCID=0 SLURM_LOCALID=0 \
         SLURM_NODEID=0 SLURM_GTIDS=0 \
         SLURM_TASK_PID=26698"
            .into(),
    )
}

/// Script of `sbatch` of Slurm 26.05 (slurmstepd/task.c), submitted from inside a step of two tasks.
pub fn sbatch_numbered() -> Layer {
    sets(
        "SLURM_JOB_ID=4 SLURM_STEP_ID=-5 SLURM_STEPID=-5 SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=4 \
         SLURM_PROCID=0 \
         SLURM_LOCALID=0 SLURM_GTIDS=0 SLURM_TASK_PID=26698"
            .into(),
    )
}

/// Shell of `salloc -n 4` on the login node.
pub fn salloc() -> Layer {
    sets("SLURM_JOB_ID=5 SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_JOB_NAME=interactive".into())
}

/// Shell of `salloc -n 4` as its own step.
pub fn salloc_step() -> Layer {
    sets(
        "SLURM_JOB_ID=54 SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_STEP_ID=4294967290 \
         SLURM_STEPID=4294967290 \
         SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_TASK_PID=8644 \
         SLURM_MPI_TYPE=none"
            .into(),
    )
}

/// `flux run -o pmi=off`.
pub fn flux(rank: usize, size: usize) -> Layer {
    sets(format!(
        "FLUX_URI=local:///run/flux/local FLUX_JOB_ID=f9F7 FLUX_JOB_SIZE={size} FLUX_JOB_NNODES=1 \
         FLUX_TASK_RANK={rank} FLUX_TASK_LOCAL_ID={rank}"
    ))
}

/// Variables that Flux's default, a PMI-1 server, adds.
pub fn flux_pmi(rank: usize, size: usize) -> Layer {
    sets(format!(
        "PMI_FD=12 PMI_RANK={rank} PMI_SIZE={size} FLUX_PMI_LIBRARY_PATH=/usr/lib/flux/libpmi.so"
    ))
}

/// Variables that Flux's PMIx server adds.
pub fn flux_pmix(rank: usize) -> Layer {
    sets(format!("PMIX_NAMESPACE=f9F7 PMIX_RANK={rank}"))
}

pub fn environment(layers: &[Layer]) -> BTreeMap<String, String> {
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
        let pairs = add.split_whitespace().filter_map(|pair| pair.split_once('='));
        env.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    env
}
