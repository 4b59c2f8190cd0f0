//! Acceptable process numbers of a spawn: the info key `soft` (MPI 5.0, section 11.8.4).

/// Returns the numbers from 1 to `most` that `text` lists, in descending order. Items are `a`, `a:b` or `a:b:c`,
/// separated by commas. Returns `None` for a malformed list.
pub fn read_soft(text: &str, most: u32) -> Option<Vec<u32>> {
    let mut wanted = vec![false; most as usize + 1];
    for range in text.split(',') {
        let numbers: Option<Vec<i64>> = range
            .split(':')
            .map(|number| number.trim().parse::<i32>().ok().map(i64::from))
            .collect();
        let (first, last, step) = match numbers?[..] {
            [only] => (only, only, 1),
            [first, last] => (first, last, 1),
            [first, last, step] if step != 0 => (first, last, step),
            _ => return None,
        };
        for number in 0..=i64::from(most) {
            let between = match step > 0 {
                true => first <= number && number <= last,
                false => last <= number && number <= first,
            };
            wanted[number as usize] |= between && (number - first) % step == 0;
        }
    }
    let listed = (1..=most).rev();
    Some(listed.filter(|&number| wanted[number as usize]).collect())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn soft__lists_numbers_and_ranges() {
        let read = |text| read_soft(text, 10);
        assert_eq!(read("3"), Some(vec![3]));
        assert_eq!(read("1, 3 ,2:4"), Some(vec![4, 3, 2, 1]));
        assert_eq!(read("0:10:4"), Some(vec![8, 4]));
        assert_eq!(read("9:1:-3"), Some(vec![9, 6, 3]));
        assert_eq!(read("8:2000000000"), Some(vec![10, 9, 8]));
        assert_eq!(read("11"), Some(vec![]));
        assert_eq!(read("5:1"), Some(vec![]));
    }

    #[test]
    fn fuzz__soft_is_understood_or_refused() {
        let corpus: &[&[u8]] = &[b"1,3,2:4", b"9:1:-3", b"0:2000000000:7", b"-1:-5"];
        crate::mutate::run(corpus, |input| {
            let Some(counts) = read_soft(&String::from_utf8_lossy(input), 20) else {
                return;
            };
            assert!(counts.iter().all(|count| (1..=20).contains(count)));
            assert!(counts.is_sorted_by(|a, b| a > b));
        });
    }

    #[test]
    fn soft__that_is_malformed_is_refused() {
        for text in ["", "a", "1:", "1:2:0", "1:2:3:4", "1,,2", "99999999999"] {
            assert_eq!(read_soft(text, 10), None, "{text:?}");
        }
    }
}
