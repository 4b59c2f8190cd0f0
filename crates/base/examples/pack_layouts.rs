#![allow(unsafe_code)]
//! Packs and unpacks one kind of layout repeatedly, so that callgrind counts its instructions:
//!
//! ```sh
//! cargo build --profile quick -p fastpath-base --example pack_layouts
//! valgrind --tool=callgrind --toggle-collect='*pack_once*' target/quick/examples/pack_layouts vector4 10
//! ```

use fastpath_base::layout::{Layout, LayoutError, StructPart};

/// Layouts of 1000 pieces, by name; the second value is the number of elements.
fn make_layout(kind: &str) -> Result<Option<(Layout, u64)>, LayoutError> {
    let (int, double, char) = (Layout::basic(4, 4), Layout::basic(8, 8), Layout::basic(1, 1));
    let part = |layout, count, displacement| StructPart { layout, count, displacement };
    Ok(Some(match kind {
        "contiguous" => (int.repeat(1000)?, 1),
        "vector4" => (int.vector(1000, 1, 8)?, 1),
        "vector8" => (double.vector(1000, 1, 16)?, 1),
        "vector40" => (double.vector(1000, 5, 64)?, 1),
        "resized4" => (int.resized(0, 8)?, 1000),
        "rows_of_2" => (int.vector(2, 1, 8)?.vector(500, 1, 24)?, 1),
        "rows_of_10" => (int.vector(10, 1, 8)?.vector(100, 1, 100)?, 1),
        "cube" => (int.vector(10, 1, 8)?.vector(10, 1, 100)?.vector(10, 1, 1000)?, 1),
        "structure" => (
            Layout::structure([
                part(&char, 1, 0),
                part(&int, 1, 4),
                part(&double, 2, 16),
                part(&char, 1, 40),
            ])?,
            250,
        ),
        "index" => (int.indexed(1, (0..1000i64).map(|i| i * 16 + i * i % 5 % 2 * 8))?, 1),
        _ => return Ok(None),
    }))
}

#[inline(never)]
fn pack_once(layout: &Layout, memory: &[u8], count: u64, out: &mut [u8]) -> usize {
    // SAFETY: `main` made `memory` as large as the span of `count` elements.
    unsafe { layout.pack(memory.as_ptr(), count, 0, out) }
}

#[inline(never)]
fn unpack_once(layout: &Layout, memory: &mut [u8], count: u64, data: &[u8]) -> usize {
    // SAFETY: `main` made `memory` as large as the span of `count` elements.
    unsafe { layout.unpack(memory.as_mut_ptr(), count, 0, data) }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, kind, rounds] = &*arguments else {
        return Err("usage: pack_layouts KIND ROUNDS".into());
    };
    let Some((layout, count)) = make_layout(kind)? else {
        return Err(format!("no kind {kind}").into());
    };
    let (low, length) = layout.span(count)?;
    assert_eq!(low, 0);
    let mut memory = vec![1u8; length as usize];
    let mut packed = vec![0u8; (layout.size() * count) as usize];
    for _ in 0..rounds.parse::<u32>()? {
        assert_eq!(pack_once(&layout, &memory, count, &mut packed), packed.len());
        assert_eq!(unpack_once(&layout, &mut memory, count, &packed), packed.len());
    }
    println!("{kind}: {} bytes, {} list entries", packed.len(), layout.entries());
    Ok(())
}
