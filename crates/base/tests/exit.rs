//! Values that live until the exit of the process. The only test of its process, because it drops all stored values.
#![allow(non_snake_case, unsafe_code)]

use fastpath_base::exit::{LazyStatic, drop_all, store};
use std::sync::{Arc, Mutex};

static TEXT: LazyStatic<Arc<str>> = LazyStatic::new(|| "made once".into());

#[test]
fn drop_all__drops_each_value_once_and_the_last_one_first() {
    struct Tracked(u32, Arc<Mutex<Vec<u32>>>);
    impl Drop for Tracked {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(self.0);
        }
    }
    let dropped = Arc::default();
    let numbers = [1, 2, 3].map(|number| store(Tracked(number, Arc::clone(&dropped))).0);
    assert_eq!((numbers, dropped.lock().unwrap().len()), ([1, 2, 3], 0));
    let (first, again) = (TEXT.get().clone(), TEXT.get().clone());
    assert_eq!(Arc::strong_count(&first), 3);
    // SAFETY: this process runs only this test, and the references above are no longer used.
    unsafe { drop_all() };
    assert_eq!(*dropped.lock().unwrap(), [3, 2, 1]);
    drop(again);
    assert_eq!((Arc::strong_count(&first), &**TEXT.get()), (1, "made once"));
    // SAFETY: this process runs only this test, and no reference to `TEXT` is left.
    unsafe { drop_all() };
}
