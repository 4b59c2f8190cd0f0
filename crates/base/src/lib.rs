//! Message passing at the speed of the cache line: what every layer stands on.
