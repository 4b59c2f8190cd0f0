//! Connections of an interface, by index. The index of a removed connection is reused.

pub(super) struct NumberedTable<T>(Vec<Option<Box<T>>>);

impl<T> NumberedTable<T> {
    pub fn new() -> Self {
        NumberedTable(Vec::new())
    }

    pub fn insert(&mut self, connection: T) -> usize {
        let index = self.0.iter().position(Option::is_none);
        let index = index.unwrap_or_else(|| {
            self.0.push(None);
            self.0.len() - 1
        });
        self.0[index] = Some(Box::new(connection));
        index
    }

    pub fn remove(&mut self, index: usize) -> Option<Box<T>> {
        self.0.get_mut(index)?.take()
    }

    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.0.get(index)?.as_deref()
    }

    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.0.get_mut(index)?.as_deref_mut()
    }

    #[inline]
    pub fn of_endpoint(&mut self, index: usize) -> &mut T {
        match self.get_mut(index) {
            Some(connection) => connection,
            None => unreachable!("an endpoint without its connection"),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(Option::as_deref)
    }

    pub fn numbers(&self) -> Vec<usize> {
        let there = |&index: &usize| self.0[index].is_some();
        (0..self.0.len()).filter(there).collect()
    }

    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.0.len()
    }

    pub fn count(&self) -> u32 {
        self.iter().count() as u32
    }
}
