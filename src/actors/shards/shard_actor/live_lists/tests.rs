use super::*;

#[test]
fn jobs_that_ask_for_lists_again_and_again_hold_up_no_others() {
    let all: Vec<JobId> = (0..60).map(|number| JobId::from(&*format!("j{number:02}"))).collect();
    let mut lists = LiveLists::default();
    all.iter().for_each(|job| lists.wait(job.clone()));
    // The first ones are served, and ask again; they asked before, too, while they waited.
    for job in &all[..50] {
        lists.wait(job.clone());
        lists.jobs.remove(job);
        lists.wait(job.clone());
    }
    let mut waiting: Vec<JobId> = all.clone();
    waiting.sort_by_key(|job| lists.jobs[job]);
    assert_eq!(waiting[..10], all[50..]);
}

/// Tenants may keep lists in progress at all times, and one of them forever.
#[tokio::test(start_paused = true)]
async fn pods_are_remembered_as_shown_only_as_long_as_a_list_may_show_them_as_they_were() {
    for lasts in [Duration::from_secs(2), 100 * LONGEST_LIST] {
        let mut lists = LiveLists::default();
        for number in 0..10_000_u64 {
            let list = JobId::from(if number % 2 == 0 { "even" } else { "odd" });
            let is_due = |begun: TokioInstant| begun.elapsed() >= lasts;
            if lists.own.begun(&list).is_none_or(is_due) {
                let task = AbortOnDropHandle::new(tokio::spawn(std::future::pending()));
                let begun = lists.tick();
                lists.own.begin(list.clone(), begun, task);
            }
            lists.pod_shown(&(&*number.to_string()).into(), number);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let bound = if lasts < LONGEST_LIST { 16 } else { 4 * LONGEST_LIST.as_secs() as usize };
        assert!(lists.shown.len() <= bound, "{lasts:?}: {} pods", lists.shown.len());
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_shown_before_a_list_began_is_no_newer_than_the_list() {
    let mut lists = LiveLists::default();
    let begin = |lists: &mut LiveLists, list: &str| {
        let begun = lists.tick();
        lists.own.begin(list.into(), begun, AbortOnDropHandle::new(tokio::spawn(async {})));
        begun
    };
    let first = begin(&mut lists, "first");
    lists.pod_shown(&"p".into(), 7);
    let second = begin(&mut lists, "second");
    assert_eq!([first, second].map(|begun| lists.shown_since(begun, &"p".into())), [Some(7), None]);
    lists.pod_shown(&"p".into(), 8);
    assert_eq!([first, second].map(|begun| lists.shown_since(begun, &"p".into())), [Some(8); 2]);
}
