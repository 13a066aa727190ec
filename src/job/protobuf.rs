//! Writes protobuf messages, as far as pods and Events need that.

use bytes::Bytes;

/// Numbers of fields of `k8s.io/api/core/v1` and `k8s.io/apimachinery/pkg/apis/meta/v1`.
pub mod field {
    /// `ObjectMeta.labels`.
    pub const LABELS: u32 = 11;
    /// `ObjectMeta.annotations`.
    pub const ANNOTATIONS: u32 = 12;
    /// `PodSpec.containers`.
    pub const CONTAINERS: u32 = 2;
    /// `PodSpec.hostname`.
    pub const HOSTNAME: u32 = 16;
    /// `PodSpec.initContainers`.
    pub const INIT_CONTAINERS: u32 = 20;
    /// `Container.env`.
    pub const ENV: u32 = 7;
}

/// What an object in protobuf begins with.
const PREFIX: &[u8] = b"k8s\0";

/// An object of the core API group (`v1`) of about so many bytes, in the envelope of all objects.
pub fn core_object(kind: &str, length: usize, content: impl FnOnce(&mut Writer)) -> Bytes {
    let mut envelope = Writer(Vec::with_capacity(length));
    envelope.append(PREFIX);
    envelope.message(1, |type_meta| {
        type_meta.bytes(1, b"v1");
        type_meta.bytes(2, kind.as_bytes());
    });
    envelope.message(2, content);
    envelope.0.into()
}

/// A message in the making.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

/// Wire types.
const VARINT: u64 = 0;
const LENGTH_DELIMITED: u64 = 2;

impl Writer {
    /// A field with text, bytes or an encoded message.
    pub fn bytes(&mut self, number: u32, value: &[u8]) {
        self.varint(u64::from(number) << 3 | LENGTH_DELIMITED);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// A field with a number or flag.
    pub fn number(&mut self, number: u32, value: u64) {
        self.varint(u64::from(number) << 3 | VARINT);
        self.varint(value);
    }

    /// A field with a message. Its length stands before it, and is known once it is written.
    pub fn message(&mut self, number: u32, content: impl FnOnce(&mut Self)) {
        self.varint(u64::from(number) << 3 | LENGTH_DELIMITED);
        let begin = self.0.len();
        content(self);
        let end = self.0.len();
        self.varint((end - begin) as u64);
        let length = self.0.len() - end;
        self.0[begin..].rotate_right(length);
    }

    /// An entry of a field that is a map of texts.
    pub fn entry(&mut self, number: u32, key: &str, value: &str) {
        self.message(number, |entry| {
            entry.bytes(1, key.as_bytes());
            entry.bytes(2, value.as_bytes());
        });
    }

    /// Fields that are encoded already.
    pub fn append(&mut self, fields: &[u8]) {
        self.0.extend_from_slice(fields);
    }

    /// The encoded message.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_encoded_as_protobuf_wants_them() {
        let mut writer = Writer::default();
        writer.number(6, 1);
        writer.number(20, 300);
        writer.entry(11, "k", "v");
        writer.append(b"\x0a\x00");
        assert_eq!(writer.into_bytes(), b"\x30\x01\xa0\x01\xac\x02\x5a\x06\x0a\x01k\x12\x01v\x0a\x00");
    }
}
