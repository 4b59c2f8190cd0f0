//! Names of the copy loops; `engine` runs them.

/// Bytes of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// 16 bytes, which every processor has.
    B16,
    /// 32 bytes: AVX.
    B32,
    /// 64 bytes: AVX-512.
    B64,
}

/// Lines prefetched by a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Prefetch {
    /// None beyond the processor's own prefetchers.
    Nothing,
    /// Lines that are read, by PREFETCHT0.
    Source,
    /// Lines that are written, by PREFETCHW, so that the core owns them before the store.
    Target,
}

/// A copy loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loop {
    /// Vector loads and stores.
    Vector {
        /// Bytes of a vector.
        width: Width,
        /// Prefetched lines.
        prefetch: Prefetch,
    },
    /// Vector loads and non-temporal stores, which bypass the caches and fetch no line.
    Streaming {
        /// Bytes of a vector.
        width: Width,
        /// Prefetched lines; never those of the target.
        prefetch: Prefetch,
    },
    /// String instruction (REP MOVSB).
    String,
}
