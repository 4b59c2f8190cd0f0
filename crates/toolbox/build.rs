//! Records the commit that the toolbox is built from.

#[path = "../commit.rs"]
mod commit;

fn main() {
    commit::note_version();
}
