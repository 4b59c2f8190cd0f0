//! Tests with random types: the result of MPI_Type_get_contents makes an equal type, and element counts agree with a
//! list of the basic elements.
#![allow(non_snake_case)]

use super::*;
use proptest::prelude::*;

fn named(handle: usize) -> Rc<Datatype> {
    Rc::new(Datatype::named(Basic::from_handle(handle).expect("a handle of the table")))
}

fn any_form() -> impl Strategy<Value = Form> {
    prop_oneof![Just(Form::Small), Just(Form::Large)]
}

fn any_type() -> impl Strategy<Value = Rc<Datatype>> {
    const HANDLES: [usize; 7] = [
        MPI_CHAR,
        MPI_SHORT,
        MPI_INT,
        MPI_DOUBLE,
        MPI_DOUBLE_INT,
        MPI_C_FLOAT_COMPLEX,
        MPI_LONG_DOUBLE,
    ];
    let leaf = prop::sample::select(&HANDLES[..]).prop_map(named);
    leaf.prop_recursive(4, 20, 3, |inner| {
        let at = -50i64..100;
        let blocks = prop::collection::vec((0i64..4, at.clone()), 0..4);
        let places = prop::collection::vec(at.clone(), 0..4);
        let parts = prop::collection::vec((0i64..3, at.clone(), inner.clone()), 0..4);
        let dims = prop::collection::vec((1i64..4, 0i64..3, 0i64..3), 1..4);
        let grid = prop::collection::vec((1i64..7, 0usize..3, 1i64..3, 1i64..3), 1..4);
        let old = inner;
        prop_oneof![
            (0i64..4, old.clone(), any_form()).prop_map(|(n, t, f)| Datatype::contiguous(n, &t, f)),
            (0i64..4, 0i64..3, -4i64..5, old.clone(), any_form())
                .prop_map(|(n, len, s, t, f)| Datatype::vector(n, len, s, &t, f)),
            (0i64..4, 0i64..3, at.clone(), old.clone(), any_form())
                .prop_map(|(n, len, s, t, f)| Datatype::hvector(n, len, s, &t, f)),
            (blocks.clone(), old.clone(), any_form(), any::<bool>()).prop_map(
                |(blocks, t, f, bytes)| {
                    let (lengths, places): (Vec<_>, Vec<_>) = blocks.into_iter().unzip();
                    if bytes {
                        Datatype::hindexed(&lengths, &places, &t, f)
                    } else {
                        Datatype::indexed(&lengths, &places, &t, f)
                    }
                }
            ),
            (0i64..3, places, old.clone(), any_form(), any::<bool>()).prop_map(
                |(len, places, t, f, bytes)| {
                    if bytes {
                        Datatype::hindexed_block(len, &places, &t, f)
                    } else {
                        Datatype::indexed_block(len, &places, &t, f)
                    }
                }
            ),
            (parts, any_form()).prop_map(|(parts, f)| {
                let lengths: Vec<_> = parts.iter().map(|p| p.0).collect();
                let places: Vec<_> = parts.iter().map(|p| p.1).collect();
                Datatype::structure(&lengths, &places, parts.into_iter().map(|p| p.2).collect(), f)
            }),
            (at.clone(), at, old.clone(), any_form())
                .prop_map(|(lb, extent, t, f)| Datatype::resized(&t, lb, extent, f)),
            old.clone().prop_map(|t| Ok(Datatype::duplicate(&t))),
            (dims, any::<bool>(), old.clone(), any_form()).prop_map(|(dims, c, t, f)| {
                let sizes: Vec<_> =
                    dims.iter().map(|(sub, start, end)| sub + start + end).collect();
                let subsizes: Vec<_> = dims.iter().map(|d| d.0).collect();
                let starts: Vec<_> = dims.iter().map(|d| d.1).collect();
                Datatype::subarray(&sizes, &subsizes, &starts, order_code(c), &t, f)
            }),
            (grid, 0i64..100, any::<bool>(), old.clone(), any_form())
                .prop_map(|(grid, rank, c, t, f)| make_darray(&grid, rank, order_code(c), &t, f)),
        ]
        .prop_map(|made| Rc::new(made.expect("small arguments make a type")))
    })
}

fn order_code(c: bool) -> i32 {
    if c { MPI_ORDER_C } else { MPI_ORDER_FORTRAN }
}

/// Makes a darray over a grid of (size, distribution, argument, processes).
fn make_darray(
    grid: &[(i64, usize, i64, i64)], rank: i64, order: i32, old: &Rc<Datatype>, form: Form,
) -> Result<Datatype> {
    let codes = [MPI_DISTRIBUTE_NONE, MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC].map(i64::from);
    let distribs: Vec<_> = grid.iter().map(|d| codes[d.1]).collect();
    let psizes: Vec<_> = grid.iter().map(|d| if d.1 == 0 { 1 } else { d.3 }).collect();
    let dargs: Vec<_> = grid
        .iter()
        .map(|d| if d.1 == 2 { d.2 } else { i64::from(MPI_DISTRIBUTE_DFLT_DARG) })
        .collect();
    let gsizes: Vec<_> = grid.iter().map(|d| d.0).collect();
    let size = psizes.iter().product();
    let array = DistributedArray {
        size,
        rank: rank % size,
        gsizes: &gsizes,
        distribs: &distribs,
        dargs: &dargs,
        psizes: &psizes,
        order,
    };
    Datatype::darray(&array, old, form)
}

fn make_again(datatype: &Rc<Datatype>) -> Rc<Datatype> {
    let mut same = |named: &Rc<Datatype>, _| Ok::<_, TypeError>(named.clone());
    let again = datatype.rebuild(&mut same);
    again.expect("the arguments made a type before")
}

fn bytes_of(datatype: &Datatype) -> Vec<i64> {
    let mut all = Vec::new();
    datatype.layout.for_each_run(1, 0, u64::MAX, |run| {
        for piece in 0..run.count as i64 {
            all.extend((0..run.len as i64).map(|byte| run.offset + piece * run.stride + byte));
        }
    });
    all
}

/// Returns sizes of the basic elements in order, from the constructors' arguments.
fn element_sizes(datatype: &Rc<Datatype>) -> Vec<u64> {
    let c = datatype.contents();
    if let Some(basic) = datatype.basic() {
        return match basic.pair_parts() {
            Some((value, index)) => vec![value.size.into(), index.size.into()],
            None => vec![basic.size.into()],
        };
    }
    let parts: Vec<Vec<u64>> = c.types.iter().map(element_sizes).collect();
    let counts = if c.large_counts.is_empty() { &c.integers } else { &c.large_counts };
    if c.combiner == Combiner::Struct {
        let lengths = counts[1..].iter();
        return parts.iter().zip(lengths).flat_map(|(part, n)| part.repeat(*n as usize)).collect();
    }
    let part: u64 = parts[0].iter().sum();
    let copies = datatype.layout.size().checked_div(part).unwrap_or(0);
    parts[0].repeat(copies as usize)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None,
        ..Default::default() })]

    #[test]
    fn contents__make_the_same_type_again(datatype in any_type()) {
        let again = make_again(&datatype);
        prop_assert_eq!(again.extent(), datatype.extent());
        prop_assert_eq!(bytes_of(&again), bytes_of(&datatype));
        prop_assert_eq!(again.contents().combiner, datatype.contents().combiner);
        prop_assert_eq!(&again.contents().integers, &datatype.contents().integers);
        prop_assert_eq!(&again.contents().addresses, &datatype.contents().addresses);
        prop_assert_eq!(&again.contents().large_counts, &datatype.contents().large_counts);
    }

    #[test]
    fn elements__agree_with_the_list_of_them(datatype in any_type(), copies in 1usize..4) {
        let sizes = element_sizes(&datatype).repeat(copies);
        let mut bytes = 0;
        for (count, size) in sizes.iter().enumerate() {
            prop_assert_eq!(datatype.elements_from_bytes(bytes), Some(count as i64));
            prop_assert_eq!(datatype.bytes_from_elements(count as u64), Some(bytes));
            if *size > 1 {
                prop_assert_eq!(datatype.elements_from_bytes(bytes + 1), None);
            }
            bytes += size;
        }
        prop_assert_eq!(bytes, datatype.layout.size() * copies as u64);
    }
}
