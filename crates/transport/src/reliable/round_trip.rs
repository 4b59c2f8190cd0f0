//! Retransmission timeout from measured round trips (the estimator of RFC 6298).

use super::Settings;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RoundTrip {
    smoothed_ns: u64,
    variation_ns: u64,
}

impl RoundTrip {
    /// Adds a round trip. Messages that were resent do not count: their acknowledgement is ambiguous (Karn's rule).
    pub fn sample(&mut self, ns: u64) {
        if self.smoothed_ns == 0 {
            self.smoothed_ns = ns.max(1);
            self.variation_ns = ns / 2;
            return;
        }
        let off = self.smoothed_ns.abs_diff(ns);
        self.variation_ns = self.variation_ns - self.variation_ns / 4 + off / 4;
        self.smoothed_ns = (self.smoothed_ns - self.smoothed_ns / 8 + ns / 8).max(1);
    }

    pub fn timeout_ns(&self, settings: &Settings, sends: u32) -> u64 {
        let once = match self.smoothed_ns {
            0 => settings.first_timeout_ns,
            smoothed => smoothed.saturating_add(self.variation_ns.saturating_mul(4)),
        };
        let once = once.max(settings.min_timeout_ns);
        back_off(settings, once.min(settings.max_timeout_ns), sends)
    }
}

pub(super) fn back_off(settings: &Settings, once: u64, sends: u32) -> u64 {
    let doubled = once.saturating_mul(1 << sends.saturating_sub(1).min(32));
    doubled.min(settings.rest_timeout_ns)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings {
        window: 8,
        first_timeout_ns: 1000,
        min_timeout_ns: 50,
        max_timeout_ns: 10_000,
        rest_timeout_ns: 20_000,
    };

    #[test]
    fn timeout__starts_as_set_and_doubles_up_to_the_limit() {
        let timeouts: Vec<u64> =
            (1..8).map(|n| RoundTrip::default().timeout_ns(&SETTINGS, n)).collect();
        assert_eq!(timeouts, [1000, 2000, 4000, 8000, 16_000, 20_000, 20_000]);
        let most = RoundTrip::default().timeout_ns(&SETTINGS, u32::MAX);
        assert_eq!(most, 20_000);
    }

    #[test]
    fn timeout__follows_steady_round_trips_down_to_the_least() {
        let mut trips = RoundTrip::default();
        trips.sample(200);
        assert_eq!(trips.timeout_ns(&SETTINGS, 1), 200 + 4 * 100);
        for _ in 0..100 {
            trips.sample(200);
        }
        let steady = trips.timeout_ns(&SETTINGS, 1);
        assert!((200..240).contains(&steady), "{steady}");
        for _ in 0..200 {
            trips.sample(1);
        }
        assert_eq!(trips.timeout_ns(&SETTINGS, 1), 50);
    }

    #[test]
    fn timeout__grows_with_variation_and_survives_huge_samples() {
        let mut trips = RoundTrip::default();
        trips.sample(100);
        trips.sample(900);
        assert!(trips.timeout_ns(&SETTINGS, 1) > 900);
        trips.sample(u64::MAX);
        trips.sample(u64::MAX);
        assert_eq!(trips.timeout_ns(&SETTINGS, 1), 10_000);
        assert_eq!(trips.timeout_ns(&SETTINGS, u32::MAX), 20_000);
    }
}
