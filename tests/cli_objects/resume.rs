//! Runs that go on where an earlier run has ended.

use super::{Files, outcome};
use crate::binary::{Background, until};

#[test]
fn a_run_goes_on_with_the_indexes_that_have_not_succeeded() {
    let files = Files::new();
    let script = "echo $JOB_COMPLETION_INDEX | tee -a ran; test -e mended || case $JOB_COMPLETION_INDEX in 2|4) exit 1; esac";
    let run = |flags: &[&str]| {
        let array = ["--array", "0-4", "--log-dir", "logs", "--logs=ordered"];
        let (code, logs, told) =
            outcome(&mut files.run(&[&array[..], flags, &["--", "sh", "-c", script]].concat()));
        (code, logs, told)
    };
    // Nothing has run before.
    let (code, logs, told) = run(&["--resume"]);
    assert_eq!((code, logs.as_str()), (Some(1), "0\n1\n2\n3\n4\n"), "{told}");
    files.write("mended", "");
    let (code, logs, told) = run(&["--resume"]);
    assert_eq!((code, logs.as_str()), (Some(0), "2\n4\n"), "{told}");
    assert!(told.contains("3 indexes have succeeded before") && told.contains("Complete, 5/5"), "{told}");
    let log = |index: u32| std::fs::read_to_string(files.path().join(format!("logs/{index}.log"))).unwrap();
    assert_eq!([log(0), log(2)], ["0\n", "2\n"]);
    let (code, logs, told) = run(&["--resume"]);
    assert_eq!((code, logs.as_str()), (Some(0), ""), "{told}");
    assert_eq!(std::fs::read_to_string(files.path().join("ran")).unwrap().lines().count(), 7);
    // Without the flag everything runs again.
    let (code, logs, told) = run(&[]);
    assert_eq!((code, logs.lines().count()), (Some(0), 5), "{told}");

    for (flags, why) in [
        (&["--log-dir", "logs", "--resume", "--", "true"][..], "default/true- is not Indexed"),
        (
            &["--log-dir", "logs", "--resume", "--array", "0-4", "--", "true"],
            "results of other Jobs: default/sh-",
        ),
    ] {
        let (code, _, told) = outcome(&mut files.run(flags));
        assert_eq!((code, told.lines().count()), (Some(2), 1), "{told}");
        assert!(told.starts_with("--resume: ") && told.contains(why), "{told}");
    }
}

#[test]
fn a_run_that_was_killed_goes_on() {
    let files = Files::new();
    let script =
        "echo $JOB_COMPLETION_INDEX >> ran; test $JOB_COMPLETION_INDEX != 1 || test -e go || sleep 600";
    let array =
        ["--array", "0-2", "--cpus", "10m", "--log-dir", "logs", "--resume", "--", "sh", "-c", script];
    let mut killed = Background::start(&mut files.run(&array));
    let results = files.path().join("logs/yardmaster-results.json");
    until("two indexes are recorded", || {
        std::fs::read_to_string(&results).is_ok_and(|text| text.contains("\"0,2\""))
    });
    killed.0.kill().unwrap();
    killed.exit_code();
    files.write("go", "");
    let (code, _, told) = outcome(&mut files.run(&array));
    assert_eq!(code, Some(0), "{told}");
    let mut ran: Vec<_> =
        std::fs::read_to_string(files.path().join("ran")).unwrap().lines().map(str::to_owned).collect();
    ran.sort();
    assert_eq!(ran, ["0", "1", "1", "2"]);
}
