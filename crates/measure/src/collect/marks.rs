//! Marks of threads that ran, were born or moved since a walk looked at them: bytes of a table, by thread id. Pure.

/// Bytes that are looked at together: most threads of most machines rest.
const STRIDE: usize = 64;

/// Ids of the threads that are marked in `marks`, a piece of the table that begins with the id `first`; ascending.
pub fn marked(marks: &[u8], first: u32) -> impl Iterator<Item = u32> {
    let is_any = |piece: &&[u8]| piece.iter().fold(0, |any, mark| any | mark) != 0;
    (first..)
        .step_by(STRIDE)
        .zip(marks.chunks(STRIDE))
        .filter(move |(_, piece)| is_any(piece))
        .flat_map(|(first, piece)| (first..).zip(piece).filter(|(_, mark)| **mark != 0).map(|(id, _)| id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::wire::MARKS;

    #[test]
    fn marks_are_found_wherever_they_are() {
        let mut marks = vec![0; MARKS as usize];
        let expected = [0, 1, 63, 64, 700, 4095];
        for at in expected {
            marks[at as usize] = 1;
        }
        assert_eq!(marked(&marks, 0).collect::<Vec<_>>(), expected);
        let last = (1 << 22) - MARKS;
        assert_eq!(marked(&marks, last).last(), Some((1 << 22) - 1));
        assert_eq!(marked(&[0; 100], 0).count(), 0);
        assert_eq!(marked(&[1; 100], 7).count(), 100);
    }
}
