//! Table of values that peers name by number. A number has an index and a use count, so a stale number finds nothing.

pub(crate) struct NumberedList<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for NumberedList<T> {
    fn default() -> Self {
        NumberedList { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> NumberedList<T> {
    pub fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        *place = (place.0.wrapping_add(1), Some(value));
        u64::from(place.0) << 32 | u64::from(index)
    }

    pub fn find(&self, number: u64) -> Option<&T> {
        let (used, value) = self.places.get(number as u32 as usize)?;
        value.as_ref().filter(|_| u64::from(*used) == number >> 32)
    }

    /// Removes the value of a number, if `right` returns true for it.
    pub fn remove_if(&mut self, number: u64, right: impl FnOnce(&T) -> bool) -> Option<T> {
        self.find(number).filter(|value| right(value))?;
        self.free.push(number as u32);
        self.places[number as u32 as usize].1.take()
    }

    /// Removes all values for which `wrong` returns true.
    pub fn remove_all(&mut self, wrong: impl Fn(&T) -> bool) {
        for (place, index) in self.places.iter_mut().zip(0..) {
            if place.1.take_if(|value| wrong(value)).is_some() {
                self.free.push(index);
            }
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn number__names_what_is_there_once_and_never_what_comes_after() {
        let mut numbered = NumberedList::default();
        let [first, second] = [1, 2].map(|value| numbered.insert(value));
        assert!(numbered.remove_if(first, |&value| value == 2).is_none());
        assert_eq!(numbered.find(first), Some(&1));
        assert_eq!(numbered.remove_if(first, |_| true), Some(1));
        assert!(numbered.remove_if(first, |_| true).is_none());
        let third = numbered.insert(1);
        assert!(third != first && third as u32 == first as u32);
        assert_eq!((numbered.find(first), numbered.find(third)), (None, Some(&1)));
        numbered.remove_all(|&value| value == 1);
        assert_eq!((numbered.find(third), numbered.find(second)), (None, Some(&2)));
        for number in [0, u64::MAX, 7, 1 << 32] {
            assert!(numbered.find(number).is_none());
        }
    }
}
