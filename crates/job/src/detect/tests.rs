#![allow(non_snake_case)]

mod launchers;
mod nestings;

use super::*;
use launchers::Layer::Ours;
use launchers::*;
use nestings::all_rows;
use std::collections::BTreeMap;

fn place(env: &BTreeMap<String, String>, peer: Option<&str>) -> LaunchPlace {
    detect(&|name| env.get(name).cloned(), peer)
}

fn describe(place: &LaunchPlace) -> String {
    match place {
        LaunchPlace::Own => "own".into(),
        LaunchPlace::Alone(_) => "alone".into(),
        LaunchPlace::Several(claim) => format!("{claim} ({}={})", claim.variable, claim.value),
    }
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
fn detect__asks_the_engine_where_one_rank_may_have_been_spawned() {
    let with = |parent: &str| {
        let mut env = environment(&[open_mpi(0, 1)]);
        let told = format!("pmix 0 fastpath:1:0:1 {parent}");
        env.insert(PARENT_VARIABLE.to_owned(), told);
        place(&env, None)
    };
    assert!(matches!(with("prterun-vm-22784@0"), LaunchPlace::Several(_)));
    assert!(matches!(with("prterun-vm-22784@1"), LaunchPlace::Alone(_)));
    let plain = place(&environment(&[open_mpi(0, 1)]), None);
    assert!(matches!(plain, LaunchPlace::Alone(_)));
}

#[test]
fn detect__knows_by_what_a_launcher_can_be_spoken_to() {
    let pmi1 = Some(Protocol::Pmi1);
    let by_pmix = Some(Protocol::Pmix);
    let rows = [
        ("Hydra", vec![hydra(0, 2)], HYDRA, pmi1),
        ("Hydra, TCP or another pid namespace", vec![hydra(0, 2)], Some(""), pmi1),
        ("Hydra, descriptors closed", vec![hydra(0, 2)], None, None),
        ("Hydra with PMI_PORT", vec![hydra_port(0, 2)], None, pmi1),
        ("prterun", vec![prterun(0)], None, by_pmix),
        ("Open MPI 5", vec![open_mpi(0, 2)], None, by_pmix),
        ("srun none", vec![srun(0, 2)], None, None),
        ("srun pmi2", vec![srun(0, 2), pmi2(0, 2)], SLURM, pmi1),
        ("srun pmix", vec![srun(0, 2), launchers::pmix(0)], None, by_pmix),
        ("Flux", vec![flux(0, 2), flux_pmi(0, 2)], FLUX, pmi1),
        ("Flux without PMI", vec![flux(0, 2)], None, None),
        // Variables of the outer launcher are stale in these rows.
        ("Hydra in srun pmix", vec![srun(0, 2), launchers::pmix(0), hydra(0, 2)], HYDRA, pmi1),
        ("prterun in srun pmi2", vec![srun(0, 1), pmi2(0, 1), prterun(0)], None, by_pmix),
        (
            "srun none in srun pmix",
            vec![srun(0, 4), launchers::pmix(0), srun(0, 2), sets("SLURM_STEP_ID=1".into())],
            None,
            None,
        ),
        ("srun none in Hydra", vec![hydra(0, 1), srun(0, 2)], None, None),
    ];
    for (what, layers, peer, wanted) in rows {
        match place(&environment(&layers), peer) {
            LaunchPlace::Several(claim) => assert_eq!(claim.protocol, wanted, "{what}"),
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn place__says_by_what_the_launcher_is_taken_for_alive() {
    let rows = [
        (vec![Ours], None, "Fastpath's mpiexec: FASTPATH_INTERNAL_JOB is set"),
        (
            vec![hydra(0, 2)],
            HYDRA,
            "PMI-1, because PMI_FD=9 is a socket to hydra_pmi_proxy, an ancestor",
        ),
        (vec![hydra(0, 2)], Some(""), "joins the job by PMI-1, because PMI_FD=9 is an open socket"),
        (vec![hydra_port(0, 2)], None, "joins the job by PMI-1, because PMI_PORT=vm:41029 is set"),
        (
            vec![prterun(0)],
            None,
            "PMIx, because PMIX_NAMESPACE=prterun-vm-2620@1 is set, and PMI_FD is not",
        ),
        (vec![srun(0, 2)], None, "srun of Slurm, which accepts no connections"),
        (vec![hydra(0, 1)], None, "has started one process (PMI_SIZE=1)"),
        (vec![], None, "alone: no variable of a launcher is set"),
    ];
    for (layers, peer, wanted) in rows {
        let said = place(&environment(&layers), peer).to_string();
        assert!(said.contains(wanted) && !said.contains('\n'), "{said}, wanted {wanted}");
    }
}

#[test]
fn detect__takes_a_size_of_open_mpi_that_stands_alone_for_true_unless_it_is_one() {
    let size = |size: &str| {
        let size = size.to_owned();
        detect(&move |name| (name == "OMPI_COMM_WORLD_SIZE").then(|| size.clone()), None)
    };
    assert!(matches!(size("2"), LaunchPlace::Several(_)));
    assert_eq!(size("1"), LaunchPlace::Alone(SingletonReason::Unlaunched));
}

#[test]
fn detect__never_leaves_a_rank_of_several_alone() {
    // No other launcher is alive, so any sign of a second rank decides, in any order of nesting.
    let alone =
        [hydra(0, 1), open_mpi(0, 1), srun(0, 1), pmix(0), flux(0, 1), salloc_step(), sbatch()];
    let several = [hydra(0, 2), open_mpi(0, 2), srun(0, 2), flux(0, 2), gforker(0, 3), orte(0, 2)];
    for inner in &several {
        for outer in &alone {
            let env = environment(&[outer.clone(), inner.clone()]);
            let found = place(&env, None);
            assert!(matches!(found, LaunchPlace::Several(_)), "{env:?}: {found:?}");
        }
    }
    // If the size is missing or does not exceed the rank, the process counts as one of several.
    for layer in [hydra(3, 0), hydra(1, 1), prterun(1), hydra_port(1, 2), srun(1, 1), flux(1, 1)] {
        let found = place(&environment(&[layer]), None);
        assert!(matches!(&found, LaunchPlace::Several(c) if c.size.is_none()), "{found:?}");
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
                found == LaunchPlace::Alone(SingletonReason::Asked),
                is_asked,
                "{env:?}: {found:?}"
            );
        }
    }
}

#[test]
fn detect__needs_a_launchers_mark_to_leave_our_own_job() {
    // A script may set variables of a launcher for a program that reads them.
    let wrapper = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMI_RANK=0 PMI_SIZE=2 \
        SLURM_PROCID=0 SLURM_NTASKS=2";
    let env = environment(&[Ours, sets(wrapper.into())]);
    assert_eq!(place(&env, None), LaunchPlace::Own);
}

#[test]
fn claim__cuts_long_values() {
    let env = environment(&[sets(format!("PMI_SIZE={}", "9".repeat(100_000)))]);
    let LaunchPlace::Several(claim) = place(&env, None) else {
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
            let lines: Vec<String> = pairs.map(|(name, value)| format!("{name}={value}")).collect();
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
        if let LaunchPlace::Alone(SingletonReason::Unlaunched | SingletonReason::OfOne(_)) = found {
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
