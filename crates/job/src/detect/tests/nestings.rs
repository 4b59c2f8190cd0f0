//! Nested launchers, and the expected position of a process.

use super::launchers::Layer::{FluxBroker, Ours};
use super::launchers::*;

/// Name of the row, layers from the outermost to the innermost, peer of `PMI_FD`, and expected result.
pub type Row = (&'static str, Vec<Layer>, Option<&'static str>, &'static str);

pub const HYDRA_2: &str = "rank 0 of 2 under Hydra (mpiexec of MPICH or Intel MPI) (PMI_SIZE=2)";
pub const OPEN_MPI_2: &str =
    "rank 0 of 2 under PRRTE (mpirun of Open MPI) (OMPI_COMM_WORLD_SIZE=2)";
pub const PRTERUN: &str =
    "rank 0 of an unknown number of ranks under PRRTE (mpirun of Open MPI) (PMIX_RANK=0)";
pub const SRUN_2: &str = "rank 0 of 2 under srun of Slurm (SLURM_STEP_NUM_TASKS=2)";
pub const SRUN_PMI_2: &str = "rank 0 of 2 under srun of Slurm (PMI_SIZE=2)";
pub const FLUX_2: &str = "rank 0 of 2 under Flux (FLUX_JOB_SIZE=2)";
pub const FLUX_PMI_2: &str = "rank 0 of 2 under Flux (PMI_SIZE=2)";

/// One launcher with two ranks.
pub fn rows_of_one_launcher() -> Vec<Row> {
    vec![
        ("Hydra 5", vec![hydra(0, 2)], HYDRA, HYDRA_2),
        ("Hydra 4", vec![hydra_4(0, 2)], HYDRA, HYDRA_2),
        ("Intel MPI", vec![intel(0, 2)], HYDRA, HYDRA_2),
        ("Hydra, another pid namespace", vec![hydra(0, 2)], Some(""), HYDRA_2),
        ("Hydra, descriptors closed on the way", vec![hydra(0, 2)], None, HYDRA_2),
        (
            "Hydra with PMI_PORT",
            vec![hydra_port(0, 2)],
            None,
            "rank 0 of an unknown number of ranks under Hydra (mpiexec of MPICH or Intel MPI) (PMI_ID=0)",
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
        ("srun --mpi=pmi2", vec![srun(0, 2), pmi2(0, 2)], SLURM, SRUN_PMI_2),
        ("srun --mpi=pmix", vec![srun(0, 2), pmix(0)], None, SRUN_2),
        ("srun in a batch script", vec![sbatch(), srun(0, 2)], None, SRUN_2),
        ("srun from salloc", vec![salloc_step(), srun(0, 2)], None, SRUN_2),
        ("Flux", vec![flux(0, 2), flux_pmi(0, 2)], FLUX, FLUX_PMI_2),
        ("Flux, pmi=off", vec![flux(0, 2)], None, FLUX_2),
        ("Flux, pmi=pmix", vec![flux(0, 2), flux_pmix(0)], None, FLUX_2),
    ]
}

/// Two ranks in a launcher inside another one.
pub fn rows_of_nested_launchers() -> Vec<Row> {
    vec![
        ("Hydra in srun none", vec![srun(0, 2), hydra(0, 2)], HYDRA, HYDRA_2),
        ("Hydra in srun pmi2", vec![srun(0, 1), pmi2(0, 1), hydra(0, 2)], HYDRA, HYDRA_2),
        ("Hydra in srun pmix", vec![srun(0, 1), pmix(0), hydra(0, 2)], HYDRA, HYDRA_2),
        ("Hydra over srun's daemons", vec![sbatch(), srun(0, 1), hydra(0, 2)], HYDRA, HYDRA_2),
        ("Hydra in Open MPI", vec![open_mpi(0, 1), hydra(0, 2)], HYDRA, HYDRA_2),
        ("Intel in Hydra", vec![hydra(0, 1), intel(0, 2)], HYDRA, HYDRA_2),
        ("Hydra in Flux", vec![flux(0, 1), flux_pmi(0, 1), hydra(0, 2)], HYDRA, HYDRA_2),
        (
            "Hydra with PMI_PORT in Hydra, whose PMI_FD is still open",
            vec![hydra(0, 1), hydra_port(0, 2)],
            HYDRA,
            "rank 0 of an unknown number of ranks under Hydra (mpiexec of MPICH or Intel MPI) (PMI_ID=0)",
        ),
        ("Open MPI in Hydra", vec![hydra(0, 1), open_mpi(0, 2)], None, OPEN_MPI_2),
        ("Open MPI in Intel", vec![intel(0, 1), open_mpi(0, 2)], None, OPEN_MPI_2),
        ("Open MPI 4 in Hydra", vec![hydra(0, 1), orte(0, 2)], None, OPEN_MPI_2),
        ("Open MPI 5 in 4", vec![orte(0, 1), open_mpi(0, 2)], None, OPEN_MPI_2),
        ("Open MPI in srun none", vec![srun(0, 1), open_mpi(0, 2)], None, OPEN_MPI_2),
        ("Open MPI in srun pmi2", vec![srun(0, 1), pmi2(0, 1), open_mpi(0, 2)], None, OPEN_MPI_2),
        ("Open MPI in srun pmix", vec![srun(0, 1), pmix(0), open_mpi(0, 2)], None, OPEN_MPI_2),
        ("Open MPI in a batch script", vec![sbatch(), open_mpi(0, 2)], None, OPEN_MPI_2),
        ("prterun in Hydra", vec![hydra(0, 1), prterun(0)], None, PRTERUN),
        ("prterun in Open MPI", vec![open_mpi(0, 1), prterun(0)], None, PRTERUN),
        ("srun none in Hydra", vec![hydra(0, 1), srun(0, 2)], None, SRUN_2),
        ("srun pmi2 in Hydra", vec![hydra(0, 1), srun(0, 2), pmi2(0, 2)], SLURM, SRUN_PMI_2),
        ("srun pmix in Hydra", vec![hydra(0, 1), srun(0, 2), pmix(0)], None, SRUN_2),
        ("srun none in Open MPI", vec![open_mpi(0, 1), srun(0, 2)], None, SRUN_2),
        (
            "srun none in srun pmix",
            vec![srun(0, 4), pmix(0), srun(0, 2), sets("SLURM_STEP_ID=1".into())],
            None,
            SRUN_2,
        ),
        ("srun pmi2 in Open MPI", vec![open_mpi(0, 1), srun(0, 2), pmi2(0, 2)], SLURM, SRUN_PMI_2),
        ("srun pmix in Open MPI", vec![open_mpi(0, 1), srun(0, 2), pmix(0)], None, SRUN_2),
        (
            "Flux in srun",
            vec![srun(0, 4), pmi2(0, 4), FluxBroker, flux(0, 2), flux_pmi(0, 2)],
            FLUX,
            FLUX_PMI_2,
        ),
        ("Open MPI in Flux", vec![flux(0, 1), flux_pmi(0, 1), open_mpi(0, 2)], None, OPEN_MPI_2),
    ]
}

/// A rank of ours has started another launcher, which passes our variable on.
pub fn rows_inside_of_ours() -> Vec<Row> {
    vec![
        ("Hydra in ours", vec![Ours, hydra(0, 2)], HYDRA, HYDRA_2),
        ("Hydra in ours, descriptors closed", vec![Ours, hydra(0, 2)], None, HYDRA_2),
        ("Intel in ours", vec![Ours, intel(0, 2)], HYDRA, HYDRA_2),
        (
            "gforker in ours",
            vec![Ours, gforker(0, 2)],
            Some("mpiexec.gforker"),
            "rank 0 of 2 under a launcher that speaks PMI (PMI_SIZE=2)",
        ),
        ("Open MPI in ours", vec![Ours, open_mpi(0, 2)], None, OPEN_MPI_2),
        ("prterun in ours", vec![Ours, prterun(0)], None, PRTERUN),
        ("srun none in ours", vec![Ours, srun(0, 2)], None, SRUN_2),
        ("srun pmi2 in ours", vec![Ours, srun(0, 2), pmi2(0, 2)], SLURM, SRUN_PMI_2),
        ("srun pmix in ours", vec![Ours, srun(0, 2), pmix(0)], None, SRUN_2),
        ("Flux in ours", vec![Ours, flux(0, 2), flux_pmi(0, 2)], FLUX, FLUX_PMI_2),
        ("Hydra in ours in Hydra", vec![hydra(0, 2), Ours, hydra(0, 2)], HYDRA, HYDRA_2),
        ("srun in ours in srun", vec![srun(0, 4), Ours, srun(0, 2)], None, SRUN_2),
        ("Hydra of one rank in ours", vec![Ours, hydra(0, 1)], HYDRA, "alone"),
        ("srun of one task in ours", vec![Ours, srun(0, 1)], None, "alone"),
        ("a batch script from ours", vec![Ours, sbatch()], None, "alone"),
    ]
}

/// Our launcher inside another one. The outer launcher's PMI_FD is still open in our ranks.
pub fn rows_of_ours() -> Vec<Row> {
    vec![
        ("ours", vec![Ours], None, "own"),
        ("ours in Hydra", vec![hydra(0, 2), Ours], HYDRA, "own"),
        ("ours in Hydra with PMI_PORT", vec![hydra_port(0, 2), Ours], None, "own"),
        ("ours in Open MPI", vec![open_mpi(0, 2), Ours], None, "own"),
        ("ours in Open MPI 4", vec![orte(0, 2), Ours], None, "own"),
        ("ours in srun none", vec![srun(0, 2), Ours], None, "own"),
        ("ours in srun pmi2", vec![srun(0, 2), pmi2(0, 2), Ours], SLURM, "own"),
        ("ours in srun pmix", vec![srun(0, 2), pmix(0), Ours], None, "own"),
        ("ours in a batch script", vec![sbatch(), Ours], None, "own"),
        ("ours from salloc", vec![salloc(), Ours], None, "own"),
        ("ours in an interactive step", vec![salloc_step(), Ours], None, "own"),
        ("ours in Flux", vec![flux(0, 2), flux_pmi(0, 2), Ours], FLUX, "own"),
        ("ours in ours", vec![Ours, Ours], None, "own"),
        ("ours in Hydra in ours", vec![Ours, hydra(0, 2), Ours], HYDRA, "own"),
    ]
}

pub fn rows_of_single_processes() -> Vec<Row> {
    vec![
        ("no launcher", vec![], None, "alone"),
        ("Hydra of one rank", vec![hydra(0, 1)], HYDRA, "alone"),
        ("Open MPI of one rank", vec![open_mpi(0, 1)], None, "alone"),
        ("srun of one task", vec![srun(0, 1)], None, "alone"),
        ("srun pmi2 of one task", vec![srun(0, 1), pmi2(0, 1)], SLURM, "alone"),
        ("srun pmix of one task", vec![srun(0, 1), pmix(0)], None, "alone"),
        ("Flux of one task", vec![flux(0, 1), flux_pmi(0, 1)], FLUX, "alone"),
        ("a batch script", vec![sbatch()], None, "alone"),
        ("a numbered batch script", vec![sbatch_numbered()], None, "alone"),
        ("salloc", vec![salloc()], None, "alone"),
        ("salloc with a step", vec![salloc_step()], None, "alone"),
        ("a Flux batch script in srun", vec![srun(0, 4), pmi2(0, 4), FluxBroker], None, "alone"),
        // The innermost launcher is known with certainty.
        ("Hydra of one rank in srun of four", vec![srun(0, 4), hydra(0, 1)], HYDRA, "alone"),
        (
            "srun pmi2 of one in Open MPI of two",
            vec![open_mpi(0, 2), srun(0, 1), pmi2(0, 1)],
            SLURM,
            "alone",
        ),
    ]
}

pub fn all_rows() -> Vec<Row> {
    [
        rows_of_one_launcher(),
        rows_of_nested_launchers(),
        rows_inside_of_ours(),
        rows_of_ours(),
        rows_of_single_processes(),
    ]
    .concat()
}
