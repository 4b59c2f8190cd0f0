//! The connections of an interface: each has a number, which is given away again when it has ended.

/// Connections by number.
pub(super) struct Table<T>(Vec<Option<Box<T>>>);

impl<T> Table<T> {
    /// None.
    pub fn new() -> Self {
        Table(Vec::new())
    }

    /// Adds one; says its number.
    pub fn insert(&mut self, connection: T) -> usize {
        let index = self.0.iter().position(Option::is_none);
        let index = index.unwrap_or_else(|| {
            self.0.push(None);
            self.0.len() - 1
        });
        self.0[index] = Some(Box::new(connection));
        index
    }

    /// Ends one.
    pub fn remove(&mut self, index: usize) -> Option<Box<T>> {
        self.0.get_mut(index)?.take()
    }

    /// The one with a number that a peer or the adapter has named.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.0.get(index)?.as_deref()
    }

    /// As [`Table::get`].
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.0.get_mut(index)?.as_deref_mut()
    }

    /// The one of an endpoint, which is there as long as that.
    #[inline]
    pub fn of_endpoint(&mut self, index: usize) -> &mut T {
        match self.get_mut(index) {
            Some(connection) => connection,
            None => unreachable!("an endpoint without its connection"),
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(Option::as_deref)
    }

    /// Their numbers, as of now.
    pub fn numbers(&self) -> Vec<usize> {
        let there = |&index: &usize| self.0[index].is_some();
        (0..self.0.len()).filter(there).collect()
    }

    /// How many numbers have been given away.
    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.0.len()
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.iter().count() as u32
    }
}
