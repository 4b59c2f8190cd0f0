//! How bytes move between two processes.
