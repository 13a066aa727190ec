//! The output of indexes, Jobs and pods: its order and its files, and a standard output that does not take it.

use std::fs::File;
use std::process::Stdio;

use super::{Files, outcome};

#[test]
fn the_output_of_each_index_is_in_a_file() {
    let files = Files::new();
    // Index 1 fails once.
    let script = "echo of $JOB_COMPLETION_INDEX; test $JOB_COMPLETION_INDEX != 1 || test -e again || { touch again; exit 1; }";
    let args = ["--array", "0-2", "--retries", "2", "--log-dir", "logs", "--", "sh", "-c", script];
    let (code, logs, told) = outcome(&mut files.run(&args));
    assert_eq!((code, logs.as_str()), (Some(0), ""), "{told}");
    let log = |index: u32| std::fs::read_to_string(files.path().join(format!("logs/{index}.log"))).unwrap();
    assert_eq!([log(0), log(1), log(2)], ["of 0\n", "of 1\nof 1\n", "of 2\n"]);
    files.write("taken", "");
    let (code, _, told) = outcome(&mut files.run(&["--log-dir", "taken", "--", "true"]));
    assert_eq!((code, told.lines().count()), (Some(2), 1), "{told}");
}

#[test]
fn the_output_of_indexes_comes_in_their_order_and_whole() {
    let files = Files::new();
    // Index 0 ends after all others; 1 fails once, and 3 exceeds its retries.
    let script = r#"
        i=$JOB_COMPLETION_INDEX; echo "begin $i"
        case $i in
        0) until test -e 1 -a -e 2 -a -e 3; do sleep 0.02; done;;
        1) test -e again || { touch again; exit 1; };;
        2) head -c 200000 /dev/zero | tr '\0' x; echo;;
        3) touch 3; exit 1;;
        esac
        touch $i; echo "end $i""#;
    let array = ["--array", "0-3", "--retries", "1", "--cpus", "10m"];
    let run = |flags: &[&str]| {
        let args = [&array[..], flags, &["--logs=ordered", "--", "sh", "-c", script]].concat();
        let (code, logs, told) = outcome(&mut files.run(&args));
        assert_eq!(code, Some(1), "{told}");
        // All of the output is there, and nothing is repeated but the last lines of what failed, at the end.
        let before_the_end = told.split("RESULT").next().unwrap();
        assert!(!before_the_end.contains("| begin"), "{told}");
        logs
    };
    let filling = "x".repeat(200_000);
    let expected =
        format!("begin 0\nend 0\nbegin 1\nbegin 1\nend 1\nbegin 2\n{filling}\nend 2\nbegin 3\nbegin 3\n");
    assert_eq!(run(&[]), expected);
    for name in ["again", "1", "2", "3"] {
        std::fs::remove_file(files.path().join(name)).unwrap();
    }
    assert_eq!(run(&["--log-dir", "logs"]), expected);
    let kept = std::fs::read_to_string(files.path().join("logs/1.log")).unwrap();
    assert_eq!(kept, "begin 1\nbegin 1\nend 1\n");
}

#[test]
fn the_output_of_jobs_comes_in_their_order_and_that_of_pods_as_they_were_created() {
    let files = Files::new();
    let job = |name: &str, spec: &str, script: &str| {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec:\n  {spec}\n  template:\n    spec:\n      \
             restartPolicy: Never\n      containers: [{{name: main, image: none, command: [sh, -c, {script:?}]}}]\n---\n"
        )
    };
    let folder = files.path().display().to_string();
    let pods = job(
        "pods",
        "completions: 3",
        &format!("until test -e {folder}/go; do sleep 0.02; done; echo x >> {folder}/n; wc -l < {folder}/n"),
    );
    let other = job("other", "completions: 1", &format!("echo other; touch {folder}/go"));
    let path = files.write("jobs.yaml", &format!("{pods}{other}"));
    let (code, logs, told) = outcome(&mut files.run(&[path.to_str().unwrap(), "--logs=ordered"]));
    assert_eq!((code, logs.as_str()), (Some(0), "1\n2\n3\nother\n"), "{told}");
    let (code, logs, told) = outcome(&mut files.run(&[path.to_str().unwrap(), "--logs=none"]));
    assert_eq!((code, logs.as_str()), (Some(0), ""), "{told}");
}

#[test]
fn a_full_disk_of_standard_output_is_told_and_a_closed_pipe_is_not() {
    let files = Files::new();
    for how in ["--logs=live", "--logs=ordered"] {
        let outcome_at = |out: Stdio| outcome(files.run(&[how, "--", "echo", "x"]).stdout(out));
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (code, _, told) = outcome_at(full.into());
        assert_eq!((code, told.matches("No space left on device").count()), (Some(3), 1), "{how}: {told}");
        // As `| head` leaves it behind.
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let (code, _, told) = outcome_at(closed.into());
        assert_eq!((code, told.contains("standard output")), (Some(0), false), "{how}: {told}");
    }
}
