//! Detects the end of `srun`. Slurm's daemons ignore that end, so the agents' parents keep running. With PMI-1, `srun`
//! keeps names of services: the first agent publishes a name and looks it up periodically, and failed lookups show that
//! `srun` has ended.

use fastpath_base::sync::{Ordering, StaticBool};
use fastpath_job::engine::Engine;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The engine; None after the agent has left it.
pub type SharedEngine = Arc<Mutex<Option<Engine>>>;

const SERVICE: &[u8] = b"agents of mpiexec";
/// Time between two lookups.
const PAUSE: Duration = Duration::from_secs(1);
/// A failed lookup counts as a miss if it takes at most this long. It fails at once if no process listens. A late
/// failure may come from a stopped `srun`.
const SOON: Duration = Duration::from_secs(3);
/// Number of consecutive failed lookups after which `srun` counts as ended.
const MISSES: u32 = 2;

/// Watches `srun` from now on. The returned flag becomes true when `srun` has ended; None if `srun` keeps no names.
pub fn watch(engine: &SharedEngine) -> Option<Arc<StaticBool>> {
    let mut asked = engine.lock().unwrap_or_else(PoisonError::into_inner);
    let is_kept = asked.as_mut()?.publish(SERVICE, b"here").ok()?;
    drop(asked);
    let (engine, is_lost) = (engine.clone(), Arc::<StaticBool>::default());
    let told = is_lost.clone();
    let look = move || {
        let mut misses = 0;
        while misses < MISSES {
            thread::park_timeout(PAUSE);
            let begun = Instant::now();
            let mut engine = engine.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(engine) = engine.as_mut() else {
                return;
            };
            let is_there = matches!(engine.look_up(SERVICE), Ok(Some(_)));
            misses = match is_there || begun.elapsed() > SOON {
                true => 0,
                false => misses + 1,
            };
        }
        // ORDERING: release; partner is the acquire load in `Agent::lost_engine`. No other data is passed.
        told.store(true, Ordering::Release);
    };
    let thread = thread::Builder::new().stack_size(1 << 17);
    (is_kept && thread.spawn(look).is_ok()).then_some(is_lost)
}
