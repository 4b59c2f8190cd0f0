//! How many samples a case has, and of how many operations: what follows from figures alone. As in `program/engine.c`.

/// What a reading or a step of the clock is taken for: 48 ns times a power of two, so that runs on one machine, whose
/// figures for it are never quite the same, choose the same samples and can be compared.
pub fn round_up_clock(ns: f64) -> f64 {
    let mut taken = 48.0;
    while taken < ns {
        taken *= 2.0;
    }
    taken
}

/// How many of `all` samples a round has, so that the rounds together have all.
pub fn share_of_round(all: u64, round: u64, rounds: u64) -> u64 {
    let until = |r: u64| (u128::from(all) * u128::from(r) / u128::from(rounds)) as u64;
    until(round + 1) - until(round)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn clock__is_the_same_from_run_to_run() {
        assert_eq!([23.4, 31.9, 39.6, 48.0].map(round_up_clock), [48.0; 4]);
        assert_eq!(round_up_clock(331.2), 384.0);
    }

    #[test]
    fn rounds__have_all_samples_together() {
        for (all, rounds) in [(1, 5), (4, 5), (63, 5), (7, 1), (1_000_000_000_000, 3)] {
            let shares: Vec<u64> = (0..rounds)
                .map(|r| share_of_round(all, r, rounds))
                .collect();
            assert_eq!(shares.iter().sum::<u64>(), all, "{shares:?}");
            let (least, most) = (shares.iter().min(), shares.iter().max());
            assert!(most.unwrap() - least.unwrap() <= 1, "{shares:?}");
        }
    }
}
