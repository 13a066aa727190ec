//! Reads protobuf field by field, so that nothing that was written is overlooked.

use std::collections::BTreeMap;

/// The envelope of an object: its kind in field 1, its message in field 2.
pub(crate) fn envelope(body: &[u8]) -> Message<'_> {
    Message::read(body.strip_prefix(b"k8s\0").expect("the mark of protobuf"), &[1, 2])
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A field of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a protobuf message, in order.
pub(crate) struct Message<'a>(Vec<(u64, Field<'a>)>);

impl<'a> Message<'a> {
    /// A message that has these fields only.
    pub(crate) fn read(bytes: &'a [u8], known: &[u64]) -> Self {
        let fields: Vec<_> = Self::fields(bytes).map(|(number, field, _)| (number, field)).collect();
        assert!(fields.iter().all(|(number, _)| known.contains(number)), "{fields:?}");
        Self(fields)
    }

    /// Each field with its number, and what follows it.
    pub(crate) fn fields(mut bytes: &'a [u8]) -> impl Iterator<Item = (u64, Field<'a>, &'a [u8])> {
        std::iter::from_fn(move || {
            if bytes.is_empty() {
                return None;
            }
            let tag = varint(&mut bytes);
            let number = varint(&mut bytes);
            let field = match tag & 7 {
                0 => Field::Number(number),
                2 => {
                    let (content, rest) = bytes.split_at(usize::try_from(number).unwrap());
                    bytes = rest;
                    Field::Bytes(content)
                }
                other => panic!("wire type {other}"),
            };
            Some((tag >> 3, field, bytes))
        })
    }

    pub(crate) fn all(&self, number: u64) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter(move |(other, _)| *other == number).map(move |(_, field)| match field {
            Field::Bytes(bytes) => *bytes,
            Field::Number(_) => panic!("field {number} is a number"),
        })
    }

    /// The field, which is there once.
    pub(crate) fn one(&self, number: u64) -> &'a [u8] {
        let [field] = self.all(number).collect::<Vec<_>>()[..] else {
            panic!("field {number}: {:?}", self.0)
        };
        field
    }

    pub(crate) fn number(&self, wanted: u64) -> u64 {
        let found = self.0.iter().find_map(|(number, field)| match field {
            Field::Number(value) if *number == wanted => Some(*value),
            _ => None,
        });
        found.unwrap()
    }

    pub(crate) fn message(&self, number: u64, known: &[u64]) -> Message<'a> {
        Message::read(self.one(number), known)
    }

    /// Texts by key, each key once.
    pub(crate) fn map(&self, number: u64) -> BTreeMap<String, String> {
        let mut map = BTreeMap::new();
        for entry in self.all(number) {
            let entry = Message::read(entry, &[1, 2]);
            let key = text(entry.one(1));
            assert_eq!(map.insert(key.clone(), text(entry.one(2))), None, "{key} is there once");
        }
        map
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}
