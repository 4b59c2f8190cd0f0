//! A greeting, a ring and a sum, over a safe layer of the kind that the crate `mpi` has. Run it on any number of ranks:
//!
//! ```text
//! cargo build --example ring && mpiexec -n 4 target/debug/examples/ring
//! ```
#![allow(unsafe_code)]

use fastpath_mpi_sys::*;
use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::null_mut;

/// MPI from initialization to finalization.
struct Universe {
    /// MPI is initialized without support of threads: only this thread may call it.
    _one_thread: PhantomData<*mut ()>,
}

impl Universe {
    fn initialize() -> Universe {
        // SAFETY: both arguments may be null.
        let code = unsafe { MPI_Init(null_mut(), null_mut()) };
        assert_eq!(code, MPI_SUCCESS);
        Universe { _one_thread: PhantomData }
    }

    fn world(&self) -> Communicator<'_> {
        Communicator { handle: MPI_COMM_WORLD, _universe: PhantomData }
    }
}

impl Drop for Universe {
    fn drop(&mut self) {
        // SAFETY: MPI is initialized, and no communicator outlives the universe.
        unsafe { MPI_Finalize() };
    }
}

/// Type with an MPI datatype.
///
/// # Safety
///
/// Values of the type are values of [`Equivalent::datatype`], and each value of the datatype is one of the type.
unsafe trait Equivalent: Copy + Default {
    fn datatype() -> MPI_Datatype;
}

// SAFETY: both are 32-bit signed integers.
unsafe impl Equivalent for i32 {
    fn datatype() -> MPI_Datatype {
        MPI_INT32_T
    }
}

// SAFETY: both are double-precision numbers.
unsafe impl Equivalent for f64 {
    fn datatype() -> MPI_Datatype {
        MPI_DOUBLE
    }
}

/// Communicator whose errors end the job, which is the default.
#[derive(Clone, Copy)]
struct Communicator<'a> {
    handle: MPI_Comm,
    _universe: PhantomData<&'a Universe>,
}

impl Communicator<'_> {
    fn rank(self) -> c_int {
        let mut rank = 0;
        // SAFETY: `rank` lives during the call.
        unsafe { MPI_Comm_rank(self.handle, &mut rank) };
        rank
    }

    fn size(self) -> c_int {
        let mut size = 0;
        // SAFETY: `size` lives during the call.
        unsafe { MPI_Comm_size(self.handle, &mut size) };
        size
    }

    /// Sends `sent` to rank `to`, and fills `received` by a message of rank `from`; returns the received count.
    fn send_receive<T: Equivalent>(
        self, sent: &[T], to: c_int, received: &mut [T], from: c_int,
    ) -> usize {
        let mut status = MPI_Status::default();
        let mut count: MPI_Count = 0;
        // SAFETY: both buffers have the given counts of elements of the datatype, and live during the call.
        unsafe {
            MPI_Sendrecv_c(
                sent.as_ptr().cast(),
                sent.len() as MPI_Count,
                T::datatype(),
                to,
                0,
                received.as_mut_ptr().cast::<c_void>(),
                received.len() as MPI_Count,
                T::datatype(),
                from,
                0,
                self.handle,
                &mut status,
            );
            MPI_Get_count_c(&status, T::datatype(), &mut count);
        }
        assert_eq!((status.MPI_SOURCE, status.MPI_TAG), (from, 0));
        usize::try_from(count).expect("the message has whole elements")
    }

    /// Returns the sum of every rank's `values`, element by element, at each rank.
    fn sum<T: Equivalent>(self, values: &[T]) -> Vec<T> {
        let mut sums = vec![T::default(); values.len()];
        // SAFETY: both buffers have the given count of elements of the datatype.
        unsafe {
            MPI_Allreduce_c(
                values.as_ptr().cast(),
                sums.as_mut_ptr().cast::<c_void>(),
                values.len() as MPI_Count,
                T::datatype(),
                MPI_SUM,
                self.handle,
            );
        }
        sums
    }
}

/// Returns the first line of the library's version.
fn library_version() -> String {
    let mut text = [0_u8; MPI_MAX_LIBRARY_VERSION_STRING as usize];
    let mut length = 0;
    // SAFETY: the text has room for the longest version.
    unsafe { MPI_Get_library_version(text.as_mut_ptr().cast::<c_char>(), &mut length) };
    let text = String::from_utf8_lossy(&text[..length as usize]);
    text.lines().next().unwrap_or_default().to_string()
}

fn main() {
    let universe = Universe::initialize();
    let world = universe.world();
    let (rank, size) = (world.rank(), world.size());
    println!("hello from rank {rank} of {size}: {}", library_version());

    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut token = [0; 2];
    let count = world.send_receive(&[rank, 10 * rank], next, &mut token, previous);
    assert_eq!((count, token), (2, [previous, 10 * previous]));

    let sums = world.sum(&[f64::from(rank), 0.5]);
    assert_eq!(sums, [f64::from(size * (size - 1) / 2), 0.5 * f64::from(size)]);
    if rank == 0 {
        println!("ring and sum of {size} ranks are correct");
    }
}
