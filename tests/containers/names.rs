//! Pods find each other by name.

use k8s_openapi::api::core::v1::Service;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_an_indexed_job_find_each_other_by_the_names_of_their_service() {
    let Some(cluster) = Cluster::start().await else { return };
    let services: Api<Service> = Api::namespaced(cluster.client.clone(), "default");
    let spec = json!({"clusterIP": "None", "selector": {"app": "train"}});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "train"}, "spec": spec});
    services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    let pod = |name: &str, script: &str, others: Value| {
        let mut containers = vec![shell(script, json!({}))];
        containers.extend(others.as_array().unwrap().iter().cloned());
        let metadata = json!({"name": name, "labels": {"app": "train"}});
        let spec = json!({
            "hostname": name, "subdomain": "train", "containers": containers, "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
        });
        serde_json::from_value::<Pod>(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}),
        )
        .unwrap()
    };
    // The first pod has a sandbox, since it has two containers.
    let mut beside = shell("exec sleep 600", json!({}));
    beside["name"] = "beside".into();
    let serve = "while true; do echo hello from $(hostname) | nc -l -p 29500; done";
    cluster.pods.create(&PostParams::default(), &pod("train-0", serve, json!([beside]))).await.unwrap();
    let ask = |host: &str| format!("until nc -w 5 {host} 29500 < /dev/null 2> /dev/null; do sleep 0.2; done");
    let script = format!("{}; {}", ask("train-0.train"), ask("train-0.train.default.svc.cluster.local"));
    cluster.pods.create(&PostParams::default(), &pod("train-1", &script, json!([]))).await.unwrap();
    assert_eq!(cluster.prints_of("train-1").await, "hello from train-0\nhello from train-0\n");
    let networks = engine::networks("dev.yardmaster.owner");
    assert!(networks.iter().any(|name| name.ends_with("-default")), "{networks:?}");
    let own: Vec<_> =
        networks.into_iter().filter(|name| name.contains(&std::process::id().to_string())).collect();
    cluster.stop().await;
    let left = engine::networks("dev.yardmaster.owner");
    assert!(own.iter().any(|name| !left.contains(name)), "{left:?}");
}
