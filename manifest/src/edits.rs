//! Texts that are read with some places changed, and where those places were.

/// The place in the original text of a byte of the changed text. Each of these changes, in order, has made
/// the text longer by `longer` bytes.
pub(crate) fn original(changes: &[usize], longer: usize, at: usize) -> usize {
    let (mut from, mut to) = (0, changes.len());
    while from < to {
        let middle = usize::midpoint(from, to);
        if changes[middle] + middle * longer < at {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    at - from * longer
}
