#![allow(clippy::unwrap_used)]
use http::{HeaderMap, HeaderValue, header};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::*;
use crate::cluster::byte_queue::LONGEST;
use crate::cluster::test_protobuf::{field, list_metadata, object, pod_list};
use crate::cluster::wire::{ObservedPod, PodDecoder};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The result of a list: its objects, or those that cannot be read, and its version.
#[derive(Debug, Default, PartialEq)]
struct Shown {
    #[expect(clippy::vec_box, reason = "as the decoder makes them")]
    pods: Vec<Box<ObservedPod>>,
    unreadable: Vec<Unreadable>,
    nameless: usize,
    version: u64,
}

fn body_in(format: &'static str) -> ListBody<PodDecoder> {
    let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(format))]);
    ListBody::of(&headers).unwrap()
}

/// Reads a list that arrives in these pieces.
fn read<'a>(format: &'static str, pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Shown, ListError> {
    let decoder = PodDecoder::new("f");
    let (mut body, mut shown) = (body_in(format), Shown::default());
    for piece in pieces {
        body.push(Bytes::copy_from_slice(piece));
        while let Some(pod) = body.next(&decoder)? {
            match pod {
                Ok(pod) => shown.pods.push(pod),
                // Each format words the error in its own way.
                Err(NotRead { object: Some(pod), .. }) => {
                    shown.unreadable.push(Unreadable { error: "".into(), ..pod });
                }
                Err(NotRead { object: None, .. }) => shown.nameless += 1,
            }
        }
    }
    shown.version = body.end()?;
    Ok(shown)
}

/// A pod of a list.
#[derive(Clone, Debug)]
struct Sample {
    name: String,
    /// A label, which may look like JSON.
    label: String,
    /// Whether it has all that a pod needs.
    is_whole: bool,
}

impl Sample {
    fn json(&self) -> Value {
        let mut metadata = json!({
            "name": self.name, "namespace": "n", "uid": self.name, "resourceVersion": "3",
            "labels": {"l": self.label}, "managedFields": [{"fieldsV1": {"f:x": {}}}],
        });
        if self.is_whole {
            metadata["creationTimestamp"] = "1970-01-01T00:02:08Z".into();
        }
        json!({"metadata": metadata, "spec": {"containers": [{"args": ["]}", "\\\"", self.label]}]}})
    }

    fn message(&self) -> Vec<u8> {
        let name = self.name.as_bytes();
        let mut metadata = [
            field(1, name),
            field(3, b"n"),
            field(5, name),
            field(6, b"3"),
            field(11, &[field(1, b"l"), field(2, self.label.as_bytes())].concat()),
        ]
        .concat();
        if self.is_whole {
            metadata.extend(field(8, b"\x08\x80\x01\x10\x00"));
        }
        [field(1, &metadata), field(2, b""), field(15, &[0xff; 200])].concat()
    }
}

fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let label = prop_oneof!["[a-z]{0,300}", r#"[\[\]{}",:\\ ]{0,9}("items":\[)?"#, "\\PC{0,9}"];
    let sample = ("[a-z]{1,9}", label, any::<bool>());
    vec(sample.prop_map(|(name, label, is_whole)| Sample { name, label, is_whole }), 0..6)
}

/// The list in JSON: as API servers write it, or with spaces and its metadata after the objects.
fn in_json(samples: &[Sample], spaces: bool) -> String {
    let items: Vec<Value> = samples.iter().map(Sample::json).collect();
    let (items, metadata) = (json!(items), json!({"items": [1], "resourceVersion": "9"}));
    match spaces {
        true => format!("{{ \"items\" :\n {items:#} , \"metadata\": {metadata:#} }}\n"),
        false => format!(r#"{{"kind":"PodList","metadata":{metadata},"items":{items}}}"#),
    }
}

/// The list in protobuf: its metadata in two parts before these objects, and unknown fields. Returns the length up to
/// the end of the list, too.
fn in_protobuf(samples: &[Sample], at: [usize; 2]) -> (Vec<u8>, usize) {
    let mut fields: Vec<Vec<u8>> = samples.iter().map(|sample| field(2, &sample.message())).collect();
    fields.insert(at[0], list_metadata("8", ""));
    fields.insert(at[1], field(1, &field(2, b"9")));
    // Unknown fields of each wire type.
    fields.insert(at[0], [&field(9, &[0xff; 200])[..], &[10 << 3, 0xff, 1]].concat());
    fields.push([&[11 << 3 | 1][..], &[0xff; 8], &[12 << 3 | 5], &[0xff; 4]].concat());
    let whole = object("PodList", &fields.concat());
    let envelope = field(3, b"").len() + field(4, b"").len();
    let length = whole.len() - envelope;
    (whole, length)
}

/// The bytes in pieces that are cut at these places.
fn pieces<'a>(bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect()
}

proptest! {
    #[test]
    fn a_list_is_the_same_in_both_formats_however_it_is_cut(
        samples in samples(), spaces in any::<bool>(), cuts in vec(any::<Index>(), 0..20), at in any::<[Index; 2]>()
    ) {
        let json = in_json(&samples, spaces);
        let at = [at[0].index(samples.len() + 1), at[1].index(samples.len() + 2)];
        // The later part of the metadata counts.
        let (protobuf, _) = in_protobuf(&samples, [at[0].min(at[1]), at[0].max(at[1]) + usize::from(at[0] == at[1])]);
        let wanted = read(JSON, [json.as_bytes()]).unwrap();
        prop_assert_eq!(wanted.pods.len() + wanted.unreadable.len(), samples.len());
        prop_assert_eq!(wanted.unreadable.len(), samples.iter().filter(|sample| !sample.is_whole).count());
        prop_assert_eq!((wanted.version, wanted.nameless), (9, 0));
        prop_assert_eq!(&read(JSON, pieces(json.as_bytes(), &cuts)).unwrap(), &wanted);
        prop_assert_eq!(&read(JSON, json.as_bytes().chunks(1)).unwrap(), &wanted);
        prop_assert_eq!(&read(PROTOBUF, pieces(&protobuf, &cuts)).unwrap(), &wanted);
        prop_assert_eq!(&read(PROTOBUF, protobuf.chunks(1)).unwrap(), &wanted);
    }
}

proptest! {
    // Each tries all lengths.
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_list_that_lacks_its_end_is_an_error(samples in samples(), spaces in any::<bool>(), size in 1_usize..100) {
        let json = in_json(&samples, spaces);
        for length in 0..json.trim_end().len() {
            prop_assert!(read(JSON, json.as_bytes()[..length].chunks(size)).is_err(), "{}", &json[..length]);
        }
        let (protobuf, list) = in_protobuf(&samples, [0, 1]);
        for length in 0..list {
            prop_assert!(read(PROTOBUF, protobuf[..length].chunks(size)).is_err(), "{length}");
        }
        // The end of the envelope says nothing of the list.
        let wanted = read(PROTOBUF, [&protobuf[..]]).unwrap();
        for length in list..protobuf.len() {
            let shown = read(PROTOBUF, protobuf[..length].chunks(size));
            prop_assert!(shown.is_err() || shown.unwrap() == wanted);
        }
    }
}

proptest! {
    /// An API server that fails to encode an object ends its answer in order, with a `Status`
    /// after the bytes that it has sent.
    #[test]
    fn a_list_with_another_end_is_an_error(samples in samples(), cut in any::<Index>(), size in 1_usize..100) {
        let json = in_json(&samples, false);
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500});
        let broken = format!("{}{status}", String::from_utf8_lossy(&json.as_bytes()[..cut.index(json.len() + 1)]));
        prop_assert!(read(JSON, broken.as_bytes().chunks(size)).is_err());
        let (protobuf, list) = in_protobuf(&samples, [0, 1]);
        let status = object("Status", &[field(1, b""), field(2, b"Failure"), field(3, b"m")].concat());
        let cut = cut.index(protobuf.len() + 1);
        let broken = [&protobuf[..cut], &status].concat();
        // The cut goes unnoticed if the Status fills exactly the missing bytes, with fields that
        // belong to no object.
        let (missing, end) = (list.saturating_sub(cut), field(3, b"").len());
        let fills = [0, status.len() - 2 * end, status.len() - end, status.len()].contains(&missing);
        prop_assert!(fills || read(PROTOBUF, broken.chunks(size)).is_err());
    }

    /// Arbitrary bytes cause no panic, and hold no more than an object.
    #[test]
    fn any_bytes_may_come(bytes in vec(any::<u8>(), 0..200), size in 1_usize..10) {
        let _ = read(JSON, bytes.chunks(size));
        let _ = read(PROTOBUF, bytes.chunks(size));
        let _ = read(PROTOBUF, [b"k8s\0", &bytes[..]]);
        let _ = read(PROTOBUF, [&object("PodList", &bytes)[..]]);
    }
}

#[test]
fn objects_come_as_soon_as_they_are_complete() {
    let samples = ["a", "b", "c"].map(|name| Sample { name: name.into(), label: "l".into(), is_whole: true });
    let (decoder, end) = (PodDecoder::new("f"), 40);
    for (format, whole) in [
        (JSON, in_json(&samples, false).into_bytes()),
        (PROTOBUF, pod_list(9, &samples.each_ref().map(Sample::message))),
    ] {
        let mut body = body_in(format);
        let mut came = Vec::new();
        for (at, piece) in whole[..whole.len() - end].chunks(1).enumerate() {
            body.push(Bytes::copy_from_slice(piece));
            came.extend(body.next(&decoder).unwrap().map(|_| at));
        }
        assert_eq!(came.len(), 2, "{format}");
        assert!(came[1] - came[0] > 100, "{format}: {came:?}");
    }
}

fn error(format: &'static str, body: &[u8]) -> String {
    read(format, [body]).unwrap_err().to_string()
}

#[test]
fn what_is_no_whole_list_in_json_is_refused() {
    let pod = Sample { name: "a".into(), label: String::new(), is_whole: true }.json();
    let metadata = r#""metadata":{"resourceVersion":"9"}"#;
    for (list, why) in [
        (
            json!({"metadata": {"resourceVersion": "9", "continue": "t"}, "items": [pod]}).to_string(),
            "a part",
        ),
        (json!({"metadata": {}, "items": []}).to_string(), "no version"),
        (json!({"metadata": {"resourceVersion": "9"}}).to_string(), "missing field `items`"),
        (json!({"kind": "Status", "metadata": {}, "code": 500}).to_string(), "missing field `items`"),
        (json!({"metadata": {"resourceVersion": "9"}, "items": [7]}).to_string(), "not a list"),
        (json!([{"metadata": {"resourceVersion": "9"}, "items": []}]).to_string(), "malformed"),
        (format!(r#"{{{metadata},"items":[{pod}{pod}]}}"#), "not a list"),
        (format!(r#"{{{metadata},"items":[{pod},]}}"#), "not a list"),
        (format!(r#"{{{metadata},"items":[{pod}],"items":[]}}"#), "duplicate field"),
        (format!(r#"{{{metadata},"\u0069tems":[{pod}]}}"#), "not a list"),
        (format!(r#"{{{metadata},"\"items":[],"items":[{{"metadata":{{]}}}}]}}"#), "malformed"),
        (format!("{{{metadata},\"x\":\"{}\"}}", "x".repeat(2 << 20)), "not a list"),
        (format!(r#"{{{metadata},"items":[{{"x":"{}"}}]}}"#, "x".repeat(LONGEST)), "too long"),
        ("<html>".to_owned(), "malformed"),
        (String::new(), "broke off"),
    ] {
        let error = error(JSON, list.as_bytes());
        assert!(error.contains(why), "{error}: {}", &list[..list.len().min(300)]);
    }
    // Go writes `null` for no items, and the order of the fields means nothing.
    for list in [
        format!(r#"{{{metadata},"items":null}}"#),
        format!(r#" {{ "items" : [ ] , "x":{{"items":[{{}}]}}, {metadata} }} "#),
        format!(r#"{{"a\"items":[1],"b":["items"],{metadata},"items":[]}}"#),
    ] {
        assert_eq!(read(JSON, [list.as_bytes()]).unwrap(), Shown { version: 9, ..Shown::default() });
    }
}

#[test]
fn what_is_no_whole_list_in_protobuf_is_refused() {
    let metadata = list_metadata("9", "");
    let raw = |raw: &[u8]| [b"k8s\0", &field(1, &field(2, b"PodList"))[..], raw].concat();
    let long = [&[2 << 3 | 2, 0xff, 0xff, 0xff, 0xff, 0x0f][..], &[0; 100]].concat();
    for (list, why) in [
        (object("PodList", &list_metadata("9", "t")), "a part"),
        (object("PodList", &list_metadata("", "")), "no version"),
        (object("PodList", b""), "no version"),
        (object("Status", &[&metadata[..], &field(2, b"Failure")].concat()), "malformed"),
        (object("Status", &metadata), "not a list"),
        (raw(b""), "not a list"),
        (raw(&[field(2, &metadata), field(2, &metadata)].concat()), "not a list"),
        ([b"k8s\0", &field(2, &metadata)[..]].concat(), "not a list"),
        (object("PodList", &[&metadata[..], &long].concat()), "cut off"),
        (raw(&[&[2 << 3 | 2, 0xff, 0xff, 0xff, 0xff, 0x7f][..], &metadata, &long].concat()), "too long"),
        (object("PodList", &[&metadata[..], &field(2, &[0xff; 20])].concat()), "malformed"),
        (object("PodList", &[&metadata[..], &[2 << 3 | 3]].concat()), "another type"),
        (b"{}  ".to_vec(), "does not begin with"),
        (b"k8s\0".to_vec(), "not a list"),
        (Vec::new(), "broke off"),
    ] {
        let error = error(PROTOBUF, &list);
        assert!(error.contains(why), "{error}: {why}");
    }
    // The kind may come last, and an object without a name is skipped.
    let nameless = field(2, &field(1, &field(3, b"n")));
    let last =
        [b"k8s\0", &field(2, &[nameless, metadata].concat())[..], &field(1, &field(2, b"PodList"))].concat();
    let shown = read(PROTOBUF, [&last[..]]).unwrap();
    assert_eq!((shown.nameless, shown.version), (1, 9));
}
