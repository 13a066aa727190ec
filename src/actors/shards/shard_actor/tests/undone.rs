//! A webhook that admits our writes and undoes them. Each time it also writes something of its own, so the
//! watch shows a change.

use super::*;

/// How long each case is played.
const PLAYED: Duration = Duration::from_secs(30);
/// How long an answer takes.
const LATENCY: Duration = Duration::from_millis(10);
/// Most writes in that time: at once, and after pauses that double from half a second on.
const MOST: usize = 9;

/// The pod `p` without controller, after this many patches.
fn orphan(patches: u64) -> Value {
    let mut orphan = labelled(at(100 + patches, "Running", pod("p", "j")));
    orphan["metadata"]["ownerReferences"] = json!([]);
    orphan
}

/// The pod `p` of this Job, which lacks the label that the Job selects by.
fn unselected(job: &str, patches: u64) -> Value {
    let mut unselected = labelled(at(100 + patches, "Running", pod("p", job)));
    unselected["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] = "none".into();
    unselected
}

/// Plays a webhook after which the pod is `pod`, in a shard with these Jobs. Returns the number of patches.
async fn patches(jobs: &[Value], exists: bool, pod: fn(u64) -> Value) -> usize {
    let (patches, patched) = switch();
    let api = TestApi::new(move |method, uri| match method {
        "PATCH" if uri.contains("/pods/p") => Some((200, pod(patched.fetch_add(1, Ordering::Relaxed) + 1))),
        "GET" if uri.contains("/pods/p") => Some((200, pod(patched.load(Ordering::Relaxed)))),
        "GET" if uri.contains("/jobs/") && exists => {
            let name = uri.rsplit('/').next().unwrap();
            Some((200, job(name, up_to_date(0))))
        }
        "GET" if uri.contains("/jobs/") => refusal(404),
        _ => None,
    });
    let shard = Shard::start(&api.clone().after(LATENCY), jobs, vec![pod(0)]).await;
    let (begun, mut shown) = (tokio::time::Instant::now(), 0);
    while begun.elapsed() < PLAYED {
        // The answer is there before the watch shows the change.
        sleep(2 * LATENCY).await;
        let now = patches.load(Ordering::Relaxed);
        if now > shown {
            sleep(2 * LATENCY).await;
            shard.watched(vec![applied(&pod(now))]).await;
            shown = now;
        }
    }
    usize::try_from(shown).unwrap()
}

#[test]
fn an_adoption_that_a_webhook_undoes_is_tried_again_with_pauses() {
    run(async {
        let patches = patches(&[job("j", up_to_date(0))], true, orphan).await;
        assert!((3..=MOST).contains(&patches), "{patches}");
    });
}

#[test]
fn a_release_that_a_webhook_undoes_is_tried_again_with_pauses() {
    run(async {
        for (case, pod) in [
            ("no controller", orphan as fn(u64) -> Value),
            ("a Job that is gone", |patches| labelled(at(100 + patches, "Running", pod("p", "x")))),
            ("another one each time", |patches| {
                labelled(at(100 + patches, "Running", pod("p", &format!("x{patches}"))))
            }),
        ] {
            let patches = patches(&[], false, pod).await;
            assert!((3..=MOST).contains(&patches), "{case}: {patches}");
        }
    });
}

#[test]
fn a_pod_that_a_webhook_gives_back_to_a_job_that_does_not_select_it_is_released_with_pauses() {
    run(async {
        let jobs = [job("j", up_to_date(0)), job("k", up_to_date(0))];
        for (case, pods, pod) in [
            ("the same", MOST, (|patches| unselected("j", patches)) as fn(u64) -> Value),
            ("each in turn", 2 * MOST, |patches| {
                unselected(if patches % 2 == 0 { "j" } else { "k" }, patches)
            }),
        ] {
            let patches = patches(&jobs, true, pod).await;
            assert!((3..=pods).contains(&patches), "{case}: {patches}");
        }
    });
}

/// A tenant may change its Job before each of many releases, and its webhook refuses them all.
#[test]
fn releases_that_go_on_keep_no_readings_of_their_job() {
    run(async {
        let api = TestApi::new(|method, uri| match method {
            "PATCH" if uri.contains("/pods/p") => refusal(403),
            "GET" if uri.contains("/pods/p") => refusal(500),
            _ => None,
        });
        let shard = Shard::start(&api, &[job("j", up_to_date(0))], vec![]).await;
        let mut readings = Vec::new();
        for number in 0..20 {
            let mut changed = job("j", up_to_date(0));
            changed["metadata"]["resourceVersion"] = (100 + number).to_string().into();
            changed["spec"]["backoffLimit"] = number.into();
            let seen = observed_job(&changed);
            readings.push(Arc::downgrade(&seen.job.as_ref().unwrap().spec));
            shard.0.send(JobSeen { job: seen, arrived: Instant::now() }).await.unwrap();
            sleep(LATENCY).await;
            let mut pod = unselected("j", number);
            (pod["metadata"]["name"], pod["metadata"]["uid"]) =
                (format!("p{number}").into(), number.to_string().into());
            shard.watched(vec![applied(&pod)]).await;
            sleep(LATENCY).await;
        }
        sleep(10 * SOON).await;
        assert!((0..20).all(|number| api.count(&["PATCH", &format!("/pods/p{number}?")]) > 1), "they go on");
        let kept = readings.iter().filter(|reading| reading.strong_count() > 0).count();
        assert!(kept <= 2, "{kept} of {} readings", readings.len());
    });
}

/// The first Job adopts the pod, the webhook gives it to another that does not select it, and that Job
/// releases it.
#[test]
fn a_pod_that_a_webhook_moves_between_jobs_is_adopted_with_pauses() {
    run(async {
        let jobs = [job("j", up_to_date(0)), job("k", up_to_date(0))];
        let moved = |patches: u64| match patches % 2 {
            0 => orphan(patches),
            _ => {
                let mut moved = orphan(patches);
                moved["metadata"]["ownerReferences"] = pod("p", "k")["metadata"]["ownerReferences"].clone();
                moved
            }
        };
        let patches = patches(&jobs, true, moved).await;
        assert!((3..=2 * MOST).contains(&patches), "{patches}");
    });
}

/// Creates pods in an API server where a webhook changes each, but none that is released. Returns their number.
async fn creations(job: Value, change: fn(&mut Value)) -> u64 {
    let (created, creations) = switch();
    let changed = move |number: u64| {
        let mut pod = labelled(at(100 + number, "Pending", pod(&format!("p{number}"), "j")));
        pod["metadata"]["annotations"] = json!({"batch.kubernetes.io/job-completion-index": "0"});
        change(&mut pod["metadata"]);
        pod
    };
    let released = move |number: u64| {
        let mut pod = changed(number);
        pod["metadata"]["resourceVersion"] = (1_000 + number).to_string().into();
        (pod["metadata"]["ownerReferences"], pod["metadata"]["finalizers"]) = (json!([]), json!([]));
        pod
    };
    let number_of = |uri: &str| -> u64 {
        let name = uri.split(['/', '?']).find(|part| part.starts_with('p') && *part != "pods").unwrap();
        name[1..].parse().unwrap()
    };
    let (changes, to_show) = std::sync::mpsc::channel();
    let api = TestApi::new(move |method, uri| match method {
        "POST" if uri.contains("/pods") => {
            Some((201, changed(creations.fetch_add(1, Ordering::Relaxed) + 1)))
        }
        "PATCH" if uri.contains("/pods/p") => {
            let pod = released(number_of(uri));
            changes.send(applied(&pod)).unwrap();
            Some((200, pod))
        }
        "DELETE" if uri.contains("/pods/p") => {
            changes.send(Change::Deleted(observed_pod(&released(number_of(uri))))).unwrap();
            Some((200, json!({"kind": "Status", "status": "Success"})))
        }
        _ => None,
    });
    let shard = Shard::start(&api.clone().after(LATENCY), &[job], vec![]).await;
    let (begun, mut shown) = (tokio::time::Instant::now(), 0);
    while begun.elapsed() < PLAYED {
        sleep(LATENCY).await;
        shard.watched(to_show.try_iter().collect()).await;
        while shown < created.load(Ordering::Relaxed) {
            shown += 1;
            shard.watched(vec![applied(&changed(shown))]).await;
        }
    }
    shown
}

#[test]
fn pods_that_a_webhook_takes_away_when_they_are_created_are_created_again_with_pauses() {
    type ChangeOf = fn(&mut Value);
    let changes: [(&str, ChangeOf); 4] = [
        ("controller and label", |pod| {
            pod["ownerReferences"] = json!([]);
            pod["labels"] = json!({"yardmaster.dev/shard": "0"});
        }),
        ("label", |pod| pod["labels"]["batch.kubernetes.io/controller-uid"] = "none".into()),
        ("finalizer", |pod| pod["finalizers"] = json!([])),
        ("index", |pod| pod["annotations"]["batch.kubernetes.io/job-completion-index"] = "1".into()),
    ];
    for (changed, change) in changes {
        run(async move {
            let mut indexed = job("j", json!({}));
            indexed["spec"]["completionMode"] = "Indexed".into();
            (indexed["spec"]["parallelism"], indexed["spec"]["completions"]) = (2.into(), 2.into());
            let creations = creations(indexed, change).await;
            assert!((1..=2 * MOST as u64).contains(&creations), "{changed}: {creations}");
        });
    }
}

#[test]
fn a_status_that_a_webhook_undoes_is_written_again_with_pauses() {
    run(async {
        let api = TestApi::new(|method, uri| match method {
            "PATCH" if uri.contains("/jobs/j/status") => {
                Some((200, json!({"metadata": {"resourceVersion": "10"}})))
            }
            _ => None,
        });
        let mut suspended = job("j", json!({}));
        suspended["spec"]["suspend"] = true.into();
        let _shard = Shard::start(&api.clone().after(LATENCY), &[suspended], vec![]).await;
        sleep(PLAYED).await;
        let writes = api.count(&["PATCH", "/jobs/j/status"]);
        assert!((3..=MOST).contains(&writes), "{writes}");
    });
}
