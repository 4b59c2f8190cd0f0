//! `fastpath`: measures, explains and diagnoses.
fn main() {}
