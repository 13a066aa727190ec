//! Names of pods, which are derived instead of random.
//!
//! Invariant: creation is idempotent. The name follows from the Job's UID, the place and the attempt. So a
//! repeated or concurrent creation gets `AlreadyExists` and makes no second pod.
//!
//! Owners with different histories derive the same names: the names of pods that are gone are not given again. An
//! annotation of the Job records them ([`NAMES_USED_ANNOTATION`](super::names::NAMES_USED_ANNOTATION)). Exceptions: an
//! owner that never saw a pod may give its name again if the pod was created and deleted since the last status, or, of an
//! Indexed Job, deleted since the last suspension.

use super::pod::Place;

/// The alphabet of the API server's generated names: no vowels, no characters that look alike.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Longest name that also serves as a host name.
const MAX_NAME: usize = 63;
/// Longest prefix of a `generateName` that the API server keeps.
const MAX_PREFIX: usize = 58;
/// Characters after the prefix: enough that 100,000 pods with the same prefix do not collide. If the index is
/// part of the prefix, five are enough to distinguish its few attempts.
const SUFFIX: usize = 10;
const SUFFIX_INDEXED: usize = MAX_NAME - MAX_PREFIX;

/// `metadata.generateName` as the built-in Job controller sets it: `<job>-`, or `<job>-<index>-` with the
/// Job's name cut so that the index stays.
pub fn generate_prefix(job: &str, index: Option<u32>) -> String {
    let Some(index) = index else { return format!("{job}-") };
    let tail = format!("-{index}-");
    format!("{}{tail}", cut(job, MAX_PREFIX - tail.len()))
}

/// `metadata.name` of the pod at a place of a Job.
pub fn pod_name(job: &str, job_uid: &str, index: Option<u32>, place: Place) -> String {
    let len = if index.is_some() { SUFFIX_INDEXED } else { SUFFIX };
    let prefix = generate_prefix(job, index);
    let suffix =
        suffix(&[job_uid.as_bytes(), &place.number.to_be_bytes(), &place.attempt.to_be_bytes()], len);
    format!("{}{suffix}", cut(&prefix, MAX_NAME - len))
}

/// A suffix of `len` characters, at most 13, derived from all of these bytes.
pub(crate) fn suffix(of: &[&[u8]], len: usize) -> String {
    let mut hash = hash(of);
    let mut next = || {
        let digit = hash % 27;
        hash /= 27;
        char::from(ALPHABET[digit as usize])
    };
    (0..len).map(|_| next()).collect()
}

fn cut(text: &str, len: usize) -> &str {
    text.get(..len).unwrap_or(text)
}

/// FNV-1a with a final mix, because its last bytes hardly reach the upper bits. It must not change between
/// versions: replicas of two versions must agree on names.
fn hash(of: &[&[u8]]) -> u64 {
    use std::hash::Hasher;
    let mut hasher = fnv::FnvHasher::default();
    of.iter().for_each(|bytes| hasher.write(bytes));
    let mut mixed = hasher.finish();
    mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ (mixed >> 33)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use std::collections::HashSet;

    const UID: &str = "0a1b2c3d-0000-4000-8000-000000000001";

    #[test]
    fn prefixes_keep_the_index_of_a_long_job_name() {
        let long = "a".repeat(63);
        assert_eq!(generate_prefix("pi", None), "pi-");
        assert_eq!(generate_prefix("pi", Some(12)), "pi-12-");
        assert_eq!(generate_prefix(&long, None), format!("{long}-"));
        assert_eq!(generate_prefix(&long, Some(100)), format!("{}-100-", "a".repeat(53)));
    }

    /// Replicas of two versions must agree on names.
    #[test]
    fn names_never_change() {
        let place = Place { number: 3, attempt: 1 };
        assert_eq!(pod_name("pi", UID, None, place), "pi-nfq94zlrjt");
        assert_eq!(pod_name("pi", UID, Some(3), place), "pi-3-nfq94");
    }

    #[test]
    fn names_of_a_large_job_differ_and_fit() {
        let long = "a".repeat(63);
        let places = (0..50_000).flat_map(|number| (0..2).map(move |attempt| Place { number, attempt }));
        let names: HashSet<String> = places.map(|place| pod_name(&long, UID, None, place)).collect();
        assert_eq!(names.len(), 100_000);
        assert!(names.iter().all(|name| name.len() == MAX_NAME));
    }

    #[test]
    fn attempts_of_an_index_differ() {
        let names: HashSet<String> =
            (0..200).map(|attempt| pod_name("pi", UID, Some(7), Place { number: 7, attempt })).collect();
        assert_eq!(names.len(), 200);
    }
}
