//! The same Job in all styles that programs write: PyYAML, Go's `yaml`, Helm, jq, Python's and Go's `json`.
#![allow(clippy::unwrap_used, missing_docs)]

mod jobs;
mod json;
mod scalars;
mod yaml;

use proptest::prelude::*;
use serde_json::Value;
use yardmaster_manifest::Source;

/// The objects that are read from a file.
fn read(text: &[u8]) -> Result<Vec<Value>, String> {
    let source = Source::new(text);
    let told = |error: yardmaster_manifest::SyntaxError| format!("{}: {error}", source.position(error.at));
    source
        .documents()
        .into_iter()
        .map(|document| document.map(|node| node.to_value()).map_err(told))
        .collect()
}

/// The first parts of two values that differ.
fn difference(read: &Value, wanted: &Value) -> Option<String> {
    let differ = || (read != wanted).then(|| format!("read {read}, wanted {wanted}"));
    match (read, wanted) {
        (Value::Array(read), Value::Array(wanted)) if read.len() == wanted.len() => {
            read.iter().zip(wanted).find_map(|(read, wanted)| difference(read, wanted))
        }
        (Value::Object(read), Value::Object(wanted)) if read.keys().eq(wanted.keys()) => {
            read.iter().find_map(|(key, value)| Some(format!("{key}: {}", difference(value, &wanted[key])?)))
        }
        _ => differ(),
    }
}

fn check(text: &str, jobs: &[Value]) -> Result<(), TestCaseError> {
    let read = read(text.as_bytes()).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
    prop_assert_eq!(read.len(), jobs.len(), "\n{}", text);
    for (read, job) in read.iter().zip(jobs) {
        if let Some(difference) = difference(read, job) {
            return Err(TestCaseError::fail(format!("{difference}\n{text}")));
        }
    }
    Ok(())
}

proptest! {
    // A quarter of what PROPTEST_CASES says, because each case has several Jobs.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

    #[test]
    fn yaml_in_all_styles_is_the_same_object(jobs in jobs::several(), style in yaml::style(), seed: u64) {
        check(&yaml::print(&jobs, style, seed), &jobs)?;
    }

    #[test]
    fn json_in_all_styles_is_the_same_object(jobs in jobs::several(), style in json::style()) {
        check(&json::print(&jobs, style), &jobs)?;
    }

    /// A file in parts that differ, as scripts join them.
    #[test]
    fn files_that_are_joined_are_read_in_turn(
        jobs in jobs::several(), others in jobs::several(), yaml in yaml::style(), json in json::style(), seed: u64,
    ) {
        let text = format!("{}\n---\n{}", json::print(&jobs, json), yaml::print(&others, yaml, seed));
        check(&text, &[jobs, others].concat())?;
    }

    /// Windows writes line ends of two characters, and marks of the encoding.
    #[test]
    fn files_of_windows_are_the_same(jobs in jobs::several(), style in yaml::style(), seed: u64) {
        let text = yaml::print(&jobs, style, seed).replace('\n', "\r\n");
        check(&text, &jobs)?;
        check(&format!("\u{feff}{text}"), &jobs)?;
        let wide: Vec<u8> = format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect();
        let wide = read(&wide);
        prop_assert_eq!(wide.as_deref(), Ok(&*jobs));
    }
}
