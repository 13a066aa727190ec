//! Logs and termination messages of containers.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn logs_can_be_read_during_and_after_the_run() {
    let cluster = Cluster::start().await;
    let go = cluster.file("go");
    let script =
        format!("echo one; echo two >&2; until [ -e {} ]; do sleep 0.05; done; printf three", go.display());
    cluster.shell("p", &script).await;
    until("the first lines are out", async || {
        let logs = cluster.pods.logs("p", &LogParams::default()).await;
        logs.is_ok_and(|logs| logs == "one\ntwo\n")
    })
    .await;
    let follow = LogParams { follow: true, ..LogParams::default() };
    let pods = cluster.pods.clone();
    let following = tokio::spawn(async move { pods.logs("p", &follow).await.unwrap() });
    std::fs::write(&go, "").unwrap();
    assert_eq!(following.await.unwrap(), "one\ntwo\nthree");
    cluster.phase("p", "Succeeded").await;
    assert_eq!(cluster.logs("p").await, "one\ntwo\nthree");
    let last = LogParams { tail_lines: Some(1), timestamps: true, ..LogParams::default() };
    let last = cluster.pods.logs("p", &last).await.unwrap();
    let (time, text) = last.split_once(' ').unwrap();
    assert!(time.parse::<jiff::Timestamp>().is_ok());
    assert_eq!(text, "three");
    cluster.stop().await;
}

/// Clients for Python write `True`, and others `1`.
#[tokio::test(flavor = "multi_thread")]
async fn options_of_a_log_are_read_as_those_of_other_requests() {
    let cluster = Cluster::start().await;
    cluster.shell("p", "echo one; echo two").await;
    cluster.phase("p", "Succeeded").await;
    let get = async |query: &str| {
        let uri = format!("/api/v1/namespaces/default/pods/p/log?{query}");
        cluster.client.request_text(http::Request::get(uri).body(Vec::new()).unwrap()).await
    };
    for query in ["follow=True", "follow=1&previous=False", "follow=t&tailLines=2"] {
        assert_eq!(get(query).await.unwrap(), "one\ntwo\n", "{query}");
    }
    assert_eq!(get("timestamps=True&follow=False").await.unwrap().matches("Z ").count(), 2);
    let refused = get("tailLines=many").await.unwrap_err().to_string();
    assert!(refused.contains("tailLines"), "{refused}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_log_is_the_termination_message_on_request() {
    let cluster = Cluster::start().await;
    let mut main = container("echo this went wrong; exit 2");
    main["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    cluster.create("log", json!({"containers": [main]})).await;
    cluster.shell("file", "echo -n my word > $YARDMASTER_TERMINATION_LOG").await;
    let log = cluster.phase("log", "Failed").await;
    assert_eq!(state(&log).terminated.unwrap().message.as_deref(), Some("this went wrong\n"));
    let file = cluster.phase("file", "Succeeded").await;
    assert_eq!(state(&file).terminated.unwrap().message.as_deref(), Some("my word"));
    cluster.stop().await;
}
