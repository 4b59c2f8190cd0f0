//! Rebuilding of a type: its constructors are repeated over other named types. The result has the layout of a file
//! whose numbers have other sizes than in memory (MPI 5.0, section 14.5.1).

use super::contents::{Combiner, Form};
use super::{Basic, Datatype, DistributedArray, TypeError};
use std::rc::Rc;

/// Function that replaces a named type.
pub type ReplaceNamed<'a, E> = &'a mut dyn FnMut(&Rc<Datatype>, Basic) -> Result<Rc<Datatype>, E>;

impl Datatype {
    /// Makes the type again, with each named type replaced by the type that `named` returns. Counts and displacements
    /// in elements follow the new extents. Displacements in bytes do not change. Errors: the errors of `named` and of
    /// the constructors.
    pub fn rebuild<E: From<TypeError>>(
        self: &Rc<Datatype>, named: ReplaceNamed<'_, E>,
    ) -> Result<Rc<Datatype>, E> {
        if let Some(basic) = self.basic() {
            return named(self, basic);
        }
        let types = &self.contents().types;
        let old: Result<Vec<Rc<Datatype>>, E> =
            types.iter().map(|part| part.rebuild(named)).collect();
        let made = self.construct_with(old?)?;
        Ok(Rc::new(made))
    }

    /// Calls the constructor of the type with its arguments over `old`.
    fn construct_with(&self, old: Vec<Rc<Datatype>>) -> Result<Datatype, TypeError> {
        let c = self.contents();
        let (i, a, l) = (&*c.integers, &*c.addresses, &*c.large_counts);
        let form = match l.is_empty() {
            true => Form::Small,
            false => Form::Large,
        };
        let Some(first) = old.first() else {
            return match c.combiner {
                Combiner::Struct => Datatype::structure(&[], &[], old, form),
                _ => Err(TypeError::NotConvertible("a datatype without constituents")),
            };
        };
        // The large form has counts and then addresses in one list.
        let counts = if form == Form::Small { i } else { l };
        let n = counts.first().copied().unwrap_or(0) as usize;
        let behind = |at: usize| if form == Form::Small { a } else { &l[at..] };
        match c.combiner {
            Combiner::Dup => Ok(Datatype::duplicate(first)),
            Combiner::Contiguous => Datatype::contiguous(counts[0], first, form),
            Combiner::Vector => Datatype::vector(counts[0], counts[1], counts[2], first, form),
            Combiner::Hvector => Datatype::hvector(counts[0], counts[1], behind(2)[0], first, form),
            Combiner::Indexed => Datatype::indexed(&counts[1..=n], &counts[n + 1..], first, form),
            Combiner::Hindexed => Datatype::hindexed(&counts[1..=n], behind(n + 1), first, form),
            Combiner::IndexedBlock => Datatype::indexed_block(counts[1], &counts[2..], first, form),
            Combiner::HindexedBlock => Datatype::hindexed_block(counts[1], behind(2), first, form),
            Combiner::Struct => Datatype::structure(&counts[1..=n], behind(n + 1), old, form),
            Combiner::Resized => Datatype::resized(first, behind(0)[0], behind(0)[1], form),
            Combiner::Subarray => self.construct_subarray(first, form),
            Combiner::Darray => self.construct_darray(first, form),
            _ => Err(TypeError::NotConvertible("a datatype of this constructor")),
        }
    }

    fn construct_subarray(&self, old: &Rc<Datatype>, form: Form) -> Result<Datatype, TypeError> {
        let (i, l) = (&*self.contents().integers, &*self.contents().large_counts);
        let d = i[0] as usize;
        let (arrays, order) = match form {
            Form::Small => (&i[1..=3 * d], i[3 * d + 1]),
            Form::Large => (l, i[1]),
        };
        let (sizes, subsizes, starts) = (&arrays[..d], &arrays[d..2 * d], &arrays[2 * d..]);
        Datatype::subarray(sizes, subsizes, starts, order as i32, old, form)
    }

    fn construct_darray(&self, old: &Rc<Datatype>, form: Form) -> Result<Datatype, TypeError> {
        let (i, l) = (&*self.contents().integers, &*self.contents().large_counts);
        let d = i[2] as usize;
        let (gsizes, rest) = match form {
            Form::Small => (&i[3..3 + d], &i[3 + d..]),
            Form::Large => (l, &i[3..]),
        };
        let array = DistributedArray {
            size: i[0],
            rank: i[1],
            gsizes,
            distribs: &rest[..d],
            dargs: &rest[d..2 * d],
            psizes: &rest[2 * d..3 * d],
            order: rest[3 * d] as i32,
        };
        Datatype::darray(&array, old, form)
    }
}
