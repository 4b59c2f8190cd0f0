#![allow(unsafe_code)]
//! Transports and wait methods. Each is tested, and the result of the test is the reason that is printed.

use fastpath_base::config::Config;
use fastpath_base::refusal::ByteSize;
use fastpath_base::sync::AtomicU32;
use fastpath_base::wait::{self, Wake};
use fastpath_job::network::{self, Reach};
use fastpath_job::random_job_id;
use fastpath_machine::measure::time_calls;
use fastpath_segment::Segment;
use fastpath_transport::adapter::{self, AdapterTransport};
use fastpath_transport::allowed::{Allowed, is_listed};
use fastpath_transport::setup;
use fastpath_transport::setup::inline::StoredInline;
use fastpath_transport::single_copy;
use serde::Serialize;

use super::cma;

#[derive(Debug, Serialize)]
pub struct Transport {
    /// Name in `FASTPATH_TRANSPORTS`.
    pub name: &'static str,
    /// Whether the transport can and may be used here.
    pub usable: bool,
    pub reason: String,
}

#[derive(Debug, Serialize)]
pub struct Facility {
    pub name: &'static str,
    pub available: bool,
    pub note: String,
}

impl Facility {
    pub fn new(name: &'static str, available: bool, note: String) -> Facility {
        Facility { name, available, note }
    }
}

pub fn list(config: &Config) -> Vec<Transport> {
    let tried = [
        ("loopback", Ok("messages of a rank to itself, inside the process".to_owned())),
        ("shm", try_shared_memory()),
        ("cma", try_cma()),
        ("rc", try_adapter(config, AdapterTransport::Rc)),
        ("ud", try_adapter(config, AdapterTransport::Ud)),
        ("tcp", try_network(config)),
    ];
    tried
        .into_iter()
        .map(|(name, tried)| {
            let (usable, reason) = match (switched_off(config, name), tried) {
                (Some(by), _) => (false, by),
                (None, Ok(reason)) => (true, reason),
                (None, Err(reason)) => (false, reason),
            };
            Transport { name, usable, reason }
        })
        .collect()
}

fn try_adapter(config: &Config, by: AdapterTransport) -> Result<String, String> {
    let (found, diagnostics) = find_adapter(config, by)?;
    let mut text = format!(
        "{by} on {found}: between hosts, and inside a host if FASTPATH_TRANSPORTS does not list shm"
    );
    for trouble in diagnostics {
        text += &format!("; {trouble}");
    }
    Ok(text)
}

/// Describes how ranks of other hosts would reach this host. No socket stays open.
fn try_network(config: &Config) -> Result<String, String> {
    let (listener, card) = network::open(config, Reach::Network, 1)?;
    let addresses = card.addresses.iter().map(|address| address.to_string());
    let addresses: Vec<String> = addresses.collect();
    Ok(format!(
        "between hosts without an adapter, and inside a host if FASTPATH_TRANSPORTS lists only \
         tcp; addresses {}; ports such as {}",
        addresses.join(", "),
        listener.port()
    ))
}

/// Transports that a job of two ranks here may use; the error is the message with which it would fail at once.
pub fn try_all(config: &Config) -> Result<Allowed, String> {
    setup::try_transports(config, |by| find_adapter(config, by).map(drop))
}

/// Describes the adapter that a job would use, with any problem of its stored settings. The error is the reason for
/// which a job would use none.
pub fn find_adapter(
    config: &Config, by: AdapterTransport,
) -> Result<(String, Vec<String>), String> {
    let stored = StoredInline::of(config);
    let found = stored
        .with_overrides(config, |overrides| adapter::probe(by, config.device(), overrides))?;
    Ok((found, stored.take_diagnostics()))
}

fn switched_off(config: &Config, name: &str) -> Option<String> {
    if name == "cma" {
        return single_copy::switched_off(config).map(str::to_owned);
    }
    (!is_listed(config, name)).then(|| "not listed in FASTPATH_TRANSPORTS".to_owned())
}

fn try_shared_memory() -> Result<String, String> {
    let segment = Segment::create(2, random_job_id()).map_err(|e| e.to_string())?;
    let place = match segment.file_system_room() {
        None => "an anonymous memory file (memfd_create works)".to_owned(),
        Some(room) => format!(
            "an unlinked file in a file system that has {} left (memfd_create is refused)",
            ByteSize(room)
        ),
    };
    Ok(format!("between ranks of one node, through {place}"))
}

fn try_cma() -> Result<String, String> {
    let trial = cma::try_read();
    match (trial.refused, trial.read_4k_min_ns) {
        (Some(why), _) => Err(why),
        (None, Some(ns)) => Ok(format!(
            "single copy by the kernel is permitted; process_vm_readv of 4 KiB takes {ns} ns \
             (minimum of 20)"
        )),
        (None, None) => Err("not tried".to_owned()),
    }
}

/// Lists kernel facilities for waiting with their costs, as minima of batches: medians would take too long.
pub fn list_waiting() -> Vec<Facility> {
    let word = AtomicU32::new(0);
    let minimum = |body: &mut dyn FnMut()| {
        (0..20).map(|_| time_calls(50, &mut *body)).fold(f64::INFINITY, f64::min)
    };
    let futex = minimum(&mut || {
        wait::futex_wake(&word, 1);
    });
    let yielding = minimum(&mut wait::yield_now);
    // The word has another value, so the call returns at once.
    let sleeps = wait::futex_wait(&word, 1, None) == Wake::Changed;
    // SAFETY: sched_yield has no arguments.
    let yields = unsafe { libc::sched_yield() } == 0;
    let fence = wait::register_membarrier();
    let note = if fence {
        let ns = minimum(&mut || {
            wait::fence_others();
        });
        format!(
            "a rank that goes to sleep executes the fence for all senders; {ns:.0} ns (minimum)"
        )
    } else {
        "the kernel lacks membarrier, so every sender executes a fence".to_owned()
    };
    let wakes = match sleeps {
        true => format!("a wake that finds no sleeping process takes {futex:.0} ns (minimum)"),
        false => {
            "a sandbox refuses the futex, so a sleeping rank polls every millisecond".to_owned()
        }
    };
    let turns = match yields {
        true => format!("{yielding:.0} ns if no other thread is ready (minimum)"),
        false => {
            "a sandbox refuses sched_yield, so ranks that share processors sleep instead".to_owned()
        }
    };
    vec![
        Facility::new("membarrier, expedited", fence, note),
        Facility::new("futex between processes", sleeps, wakes),
        Facility::new("sched_yield", yields, turns),
    ]
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn config(name: &str, value: &str) -> Config {
        Config::from_pairs([(name.into(), value.into())]).unwrap()
    }

    #[test]
    fn transport__that_is_not_listed_says_by_which_variable() {
        let listed = config("FASTPATH_TRANSPORTS", "loopback,shm");
        assert_eq!(switched_off(&listed, "shm"), None);
        let reason = switched_off(&listed, "cma").unwrap();
        assert!(reason.contains("FASTPATH_TRANSPORTS"), "{reason}");
    }

    #[test]
    fn cma__can_be_disabled_by_name() {
        let disabled = config("FASTPATH_DISABLE", "cma");
        assert!(switched_off(&disabled, "cma").unwrap().contains("FASTPATH_DISABLE"));
        assert_eq!(switched_off(&disabled, "shm"), None);
    }

    #[test]
    fn default__lists_all() {
        let plain = Config::defaults();
        for name in ["loopback", "shm", "cma", "rc", "ud", "tcp"] {
            assert_eq!(switched_off(&plain, name), None);
        }
    }

    #[test]
    fn adapter__that_is_not_there_is_named() {
        let config = config("FASTPATH_DEVICE", "no_such_9");
        for by in [AdapterTransport::Rc, AdapterTransport::Ud] {
            let reason = try_adapter(&config, by).unwrap_err();
            // Without a device or without rdma-core, the reason names the missing part.
            let told = reason.contains("no RDMA device") || reason.contains("libibverbs");
            assert!(told, "{reason}");
        }
    }

    #[test]
    fn shared_memory__works_or_names_the_call_that_failed() {
        match try_shared_memory() {
            Ok(reason) => assert!(reason.contains("memfd_create")),
            Err(reason) => assert!(reason.contains("memory"), "{reason}"),
        }
    }

    #[test]
    fn waiting__states_what_each_costs() {
        for facility in list_waiting().iter().filter(|f| f.available) {
            assert!(facility.note.contains(" ns"), "{}", facility.note);
        }
    }
}
