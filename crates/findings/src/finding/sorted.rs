//! Values by key in a list. Keys come in their order in each interval, so two lists are merged side by side
//! instead of searching a tree for each key.

/// Values in the order of their keys, each key once.
#[derive(Clone, Debug)]
pub struct Sorted<K, V>(Vec<(K, V)>);

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Sorted<K, V> {
        Sorted(Vec::new())
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Sorted<K, V> {
    /// In any order. Of two with one key the first one stays.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Sorted<K, V> {
        let mut entries: Vec<(K, V)> = entries.into_iter().collect();
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        entries.dedup_by(|one, other| one.0 == other.0);
        Sorted(entries)
    }
}

impl<K: Ord, V> Sorted<K, V> {
    /// The number of values.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        let at = self.0.binary_search_by(|(known, _)| known.cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// Whether a key has a value.
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Keys with their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    /// Values, in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// Keeps the values that `keeps` lets through.
    pub fn retain(&mut self, mut keeps: impl FnMut(&K, &V) -> bool) {
        self.0.retain(|(key, value)| keeps(key, value));
    }

    /// Calls `each` with the value of each of these keys, which come in order; one without a value has a new one.
    pub fn update<A>(&mut self, keys: impl Iterator<Item = (K, A)>, mut each: impl FnMut(&mut V, A))
    where
        V: Default,
    {
        let (mut at, mut new) = (0, Vec::new());
        for (key, argument) in keys {
            while self.0.get(at).is_some_and(|(known, _)| *known < key) {
                at += 1;
            }
            match self.0.get_mut(at) {
                Some((known, value)) if *known == key => each(value, argument),
                _ => {
                    let mut value = V::default();
                    each(&mut value, argument);
                    new.push((key, value));
                }
            }
        }
        if !new.is_empty() {
            let old = std::mem::take(&mut self.0);
            *self = old.into_iter().chain(new).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_a_tree_is() {
        let mut tree: std::collections::BTreeMap<u32, u32> = Default::default();
        let mut sorted: Sorted<u32, u32> = Sorted::default();
        for round in 1..20u32 {
            let keys = (0..50).filter(|key| (key * 7 + round) % 5 < 2);
            keys.clone().for_each(|key| *tree.entry(key).or_default() += round);
            sorted.update(keys.map(|key| (key, round)), |sum, more| *sum += more);
            tree.retain(|key, sum| !(key + *sum).is_multiple_of(11));
            sorted.retain(|key, sum| !(key + sum).is_multiple_of(11));
            assert!(sorted.iter().eq(tree.iter()) && sorted.keys().eq(tree.keys()));
            assert!((0..60).all(|key| sorted.get(&key) == tree.get(&key)));
        }
        let sorted: Sorted<u32, u32> = [(3, 1), (1, 2), (3, 4)].into_iter().collect();
        assert!(sorted.values().eq(&[2, 1]) && sorted.count() == 2 && sorted.contains_key(&3));
    }
}
