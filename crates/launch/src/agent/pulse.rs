//! Whether `srun` lives. Slurm's daemons take no notice of its end, so the parents of the agents stay. By PMI-1 they
//! keep names of services there: the first agent publishes one, and looks it up again and again.

use fastpath_base::sync::{Ordering, StaticBool};
use fastpath_bootstrap::engine::Engine;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// An engine, until the agent leaves it.
pub type Shared = Arc<Mutex<Option<Engine>>>;

/// The name of the service.
const SERVICE: &[u8] = b"agents of mpiexec";
/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// A failed name comes back at once if no process listens any more. An `srun` that is stopped answers late.
const SOON: Duration = Duration::from_secs(3);
/// So many looks in a row find nothing.
const MISSES: u32 = 2;

/// Looks after `srun` from now on; what becomes true once it has ended. None where it keeps no names.
pub fn watch(engine: &Shared) -> Option<Arc<StaticBool>> {
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
        // ORDERING: release; partner is the load of whoever ends the ranks: nothing else is passed on.
        told.store(true, Ordering::Release);
    };
    let thread = thread::Builder::new().stack_size(1 << 17);
    (is_kept && thread.spawn(look).is_ok()).then_some(is_lost)
}
