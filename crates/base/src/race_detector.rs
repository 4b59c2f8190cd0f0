//! Annotations for ThreadSanitizer (`sanitizer/tsan_interface.h`). A program that is compiled with it does not show it
//! the atomics of this library, so the library reports which accesses its lock orders.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

type Annotation = extern "C" fn(*const c_void);

/// Functions of ThreadSanitizer; unset in most programs.
static ANNOTATIONS: OnceLock<Annotations> = OnceLock::new();

struct Annotations {
    acquire: Annotation,
    release: Annotation,
}

/// Looks for ThreadSanitizer in the program. Returns whether the locks of this library are annotated. A library that is
/// compiled with ThreadSanitizer (`scripts/tsan`) needs no annotations.
pub fn find() -> bool {
    // miri has no dynamic linker.
    if cfg!(miri) || cfg!(fastpath_tsan) {
        return false;
    }
    let found = look_up(c"__tsan_acquire").zip(look_up(c"__tsan_release"));
    let Some((acquire, release)) = found else { return false };
    _ = ANNOTATIONS.set(Annotations { acquire, release });
    true
}

fn look_up(function: &CStr) -> Option<Annotation> {
    // SAFETY: dlsym only looks up a name, which ends in 0.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, function.as_ptr()) };
    // SAFETY: the names passed here are of functions of this type. `None` has the value of a null pointer.
    unsafe { std::mem::transmute::<*mut c_void, Option<Annotation>>(found) }
}

/// Reports that the calling thread has taken the lock at `lock`: it sees what earlier holders did.
#[inline]
pub fn note_acquire<T>(lock: &T) {
    if let Some(annotations) = ANNOTATIONS.get() {
        (annotations.acquire)(std::ptr::from_ref(lock).cast());
    }
}

/// Reports that the calling thread is about to release the lock at `lock`.
#[inline]
pub fn note_release<T>(lock: &T) {
    if let Some(annotations) = ANNOTATIONS.get() {
        (annotations.release)(std::ptr::from_ref(lock).cast());
    }
}
