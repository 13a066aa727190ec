//! Protobuf that tests build by hand from the field numbers in Kubernetes' `generated.proto`.
#![allow(clippy::unwrap_used)]

/// A number of at least two bytes, which is longer than it has to be if it is small.
fn number(number: usize) -> Vec<u8> {
    let mut bytes = vec![(number & 0x7f) as u8 | 0x80];
    let mut left = number >> 7;
    while left >= 0x80 {
        bytes.push((left & 0x7f) as u8 | 0x80);
        left >>= 7;
    }
    bytes.push(left as u8);
    bytes
}

/// A length-delimited field.
pub(crate) fn field(at: u8, bytes: &[u8]) -> Vec<u8> {
    [&number(usize::from(at) << 3 | 2)[..], &number(bytes.len()), bytes].concat()
}

/// An object in its envelope.
pub(crate) fn object(kind: &str, message: &[u8]) -> Vec<u8> {
    let type_meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &type_meta), field(2, message), field(3, b""), field(4, b"")].concat()
}

/// The message of a pod.
pub(crate) fn pod(name: &str, version: u64) -> Vec<u8> {
    let metadata = [
        field(1, name.as_bytes()),
        field(3, b"n"),
        field(5, name.as_bytes()),
        field(6, version.to_string().as_bytes()),
        field(8, b"\x08\x80\x01\x10\x00"),
        field(17, &field(7, &[0xff; 300])),
    ];
    field(1, &metadata.concat())
}

/// The `metadata` of a list.
pub(crate) fn list_metadata(version: &str, token: &str) -> Vec<u8> {
    let parts = [field(1, b""), field(2, version.as_bytes()), field(3, token.as_bytes()), vec![4 << 3, 7]];
    field(1, &parts.concat())
}

/// A list of pods in its envelope.
pub(crate) fn pod_list(version: u64, pods: &[Vec<u8>]) -> Vec<u8> {
    let items: Vec<u8> = pods.iter().flat_map(|pod| field(2, pod)).collect();
    object("PodList", &[list_metadata(&version.to_string(), ""), items].concat())
}
