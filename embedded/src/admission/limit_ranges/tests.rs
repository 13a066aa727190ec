#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use jiff::Timestamp;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;

use super::*;
use crate::object;
use crate::store::{HistoryLimits, Store};
use crate::time::SystemClock;
use crate::verbs::{self, Writer, create, update};

fn server(ranges: &[Value]) -> Server {
    let store = Store::new(&resources::plurals(), HistoryLimits::default());
    let server = Server::new(store, Arc::new(SystemClock), SmallRng::seed_from_u64(1));
    verbs::bootstrap(&server).unwrap();
    for (index, limits) in ranges.iter().enumerate() {
        let range = json!({"metadata": {"name": format!("range-{index}")}, "spec": {"limits": limits}});
        insert(&server, "limitranges", range).unwrap();
    }
    server
}

/// Creates an object; the error is the message of the refusal.
fn insert(server: &Server, plural: &str, object: Value) -> Result<Value, String> {
    let resource = resources::stored(plural).unwrap();
    let writer = Writer::internal(server, "test");
    let stored = create::insert(server, resource, Some("default"), object, writer);
    stored.map(|(stored, _)| stored.decode(resource)).map_err(|error| error.message.clone())
}

fn container(name: &str, resources: &Value) -> Value {
    json!({"name": name, "image": "i", "resources": resources})
}

fn pod(containers: Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"containers": containers}})
}

/// The refusal of a pod, without its beginning.
fn refusal(ranges: &[Value], pod: Value) -> Option<String> {
    let message = insert(&server(ranges), "pods", pod).err()?;
    Some(message.strip_prefix("pods \"p\" is forbidden: ").unwrap_or(&message).to_owned())
}

#[test]
fn containers_get_what_they_do_not_name() {
    let server = server(&[json!([
        {"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "500m"}},
        {"type": "Pod", "max": {"cpu": "10"}},
    ])]);
    let mut given = pod(json!([
        container("none", &json!({})),
        container("some", &json!({"requests": {"cpu": "250m"}, "limits": {"memory": "2Gi"}})),
        container(
            "all",
            &json!({"requests": {"cpu": "1", "memory": "1Mi"}, "limits": {"cpu": "2", "memory": "1Mi"}})
        ),
    ]));
    given["spec"]["initContainers"] = json!([container("init", &json!({"limits": {"cpu": "2"}}))]);
    let stored = insert(&server, "pods", given).unwrap();
    let containers = &stored["spec"]["containers"];
    let both = json!({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}});
    assert_eq!(containers[0]["resources"], both);
    let some = json!({"requests": {"cpu": "250m", "memory": "2Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}});
    assert_eq!(containers[1]["resources"], some);
    let all = json!({"requests": {"cpu": "1", "memory": "1Mi"}, "limits": {"cpu": "2", "memory": "1Mi"}});
    assert_eq!(containers[2]["resources"], all);
    // A limit becomes the request before defaults are added.
    let init = json!({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}});
    assert_eq!(stored["spec"]["initContainers"][0]["resources"], init);
    let told = "LimitRanger plugin set: cpu, memory request for container none; cpu, memory limit for container none; \
                cpu limit for container some; memory request for init container init; \
                memory limit for init container init";
    assert_eq!(stored["metadata"]["annotations"], json!({"kubernetes.io/limit-ranger": told}));
    assert_eq!(stored["status"]["qosClass"], "Burstable");
}

#[test]
fn without_defaults_a_pod_stays_as_it_is() {
    let server = server(&[json!([{"type": "Pod", "max": {"cpu": "1"}}])]);
    let limits = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}});
    let stored = insert(&server, "pods", pod(json!([container("c", &limits)]))).unwrap();
    assert_eq!(
        (&stored["metadata"]["annotations"], &stored["spec"]["containers"][0]["resources"]),
        (&Value::Null, &limits)
    );
}

#[test]
fn containers_out_of_bounds_are_refused() {
    // An item, requests and limits of a container, and the refusal.
    let cases = [
        (json!({"max": {"cpu": "1"}}), json!({}), None),
        (json!({"max": {"cpu": "1"}}), json!({"limits": {"cpu": "1"}}), None),
        (
            json!({"max": {"cpu": "1"}}),
            json!({"limits": {"cpu": "1001m"}}),
            Some("maximum cpu usage per Container is 1, but limit is 1001m"),
        ),
        (json!({"min": {"memory": "1Mi"}}), json!({"limits": {"memory": "1Mi"}}), None),
        (
            json!({"min": {"memory": "1Mi"}}),
            json!({"limits": {"memory": "1023Ki"}}),
            Some("minimum memory usage per Container is 1Mi, but request is 1023Ki"),
        ),
        (
            json!({"maxLimitRequestRatio": {"cpu": "2"}}),
            json!({"requests": {"cpu": "300m"}, "limits": {"cpu": "1"}}),
            Some("cpu max limit to request ratio per Container is 2, but provided ratio is 3.333333"),
        ),
        (
            json!({"maxLimitRequestRatio": {"cpu": "2"}}),
            json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}),
            None,
        ),
        (
            json!({"maxLimitRequestRatio": {"cpu": "2"}}),
            json!({}),
            Some(
                "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
            ),
        ),
        (
            json!({"maxLimitRequestRatio": {"cpu": "2"}}),
            json!({"requests": {"cpu": "1"}}),
            Some(
                "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
            ),
        ),
        (
            json!({"max": {"cpu": "1", "memory": "1Gi"}}),
            json!({"limits": {"cpu": "2", "memory": "2Gi"}}),
            Some(
                "[maximum cpu usage per Container is 1, but limit is 2, \
                 maximum memory usage per Container is 1Gi, but limit is 2Gi]",
            ),
        ),
    ];
    for (mut item, resources, expected) in cases {
        item["type"] = "Container".into();
        let ranges = [json!([item])];
        let found = refusal(&ranges, pod(json!([container("c", &resources)])));
        assert_eq!(found.as_deref(), expected, "{item} {resources}");
        // Init containers count, and two containers with the same violation report it once.
        let mut both = pod(json!([container("c", &resources)]));
        both["spec"]["initContainers"] = json!([container("i", &resources)]);
        assert_eq!(refusal(&ranges, both).as_deref(), expected, "{item} {resources}");
    }
}

#[test]
fn pods_out_of_bounds_are_refused() {
    let limited = |cpu: &str| json!({"limits": {"cpu": cpu}});
    let two = pod(json!([container("a", &limited("1")), container("b", &limited("1"))]));
    let mut with_init = two.clone();
    with_init["spec"]["initContainers"] = json!([container("i", &limited("3"))]);
    let mut whole = two.clone();
    whole["spec"]["resources"] = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "4"}});
    let requested = pod(json!([container("c", &json!({"requests": {"cpu": "1"}}))]));
    let cases = [
        (json!({"max": {"cpu": "2"}}), &two, None),
        (json!({"max": {"cpu": "2"}}), &with_init, Some("maximum cpu usage per Pod is 2, but limit is 3")),
        (json!({"max": {"cpu": "3"}}), &whole, Some("maximum cpu usage per Pod is 3, but limit is 4")),
        (
            json!({"max": {"cpu": "2"}}),
            &requested,
            Some("maximum cpu usage per Pod is 2.  No limit is specified"),
        ),
        (json!({"min": {"cpu": "3"}}), &two, Some("minimum cpu usage per Pod is 3, but request is 2")),
        (
            json!({"min": {"memory": "3"}}),
            &two,
            Some("minimum memory usage per Pod is 3.  No request is specified"),
        ),
        (
            json!({"maxLimitRequestRatio": {"cpu": "1500m"}}),
            &whole,
            Some("cpu max limit to request ratio per Pod is 1500m, but provided ratio is 2.000000"),
        ),
    ];
    for (mut item, pod, expected) in cases {
        item["type"] = "Pod".into();
        assert_eq!(refusal(&[json!([item])], pod.clone()).as_deref(), expected, "{item}");
    }
}

#[test]
fn the_first_range_that_refuses_a_pod_is_told() {
    let ranges = ["3", "1", "2"].map(|max| json!([{"type": "Pod", "max": {"cpu": max}}]));
    let found = refusal(&ranges, pod(json!([container("c", &json!({"limits": {"cpu": "3"}}))])));
    assert_eq!(found.as_deref(), Some("maximum cpu usage per Pod is 1, but limit is 3"));
}

#[test]
fn claims_are_bounded_when_they_are_made_and_when_they_grow() {
    let server = server(&[json!([
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "3Gi"}},
    ])]);
    let claim = |storage: &str| {
        json!({"metadata": {"name": "c"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}},
        }})
    };
    let prefix = "persistentvolumeclaims \"c\" is forbidden: ";
    let small = "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi";
    assert_eq!(
        insert(&server, "persistentvolumeclaims", claim("1Mi")).unwrap_err(),
        format!("{prefix}{small}")
    );
    let large = "maximum storage usage per PersistentVolumeClaim is 3Gi, but request is 4Gi";
    assert_eq!(
        insert(&server, "persistentvolumeclaims", claim("4Gi")).unwrap_err(),
        format!("{prefix}{large}")
    );
    insert(&server, "persistentvolumeclaims", claim("2Gi")).unwrap();
    let (resource, key) =
        (resources::stored("persistentvolumeclaims").unwrap(), object::key(Some("default"), "c"));
    let change = |subresource: Subresource, change: &dyn Fn(&mut Value)| {
        let writer = Writer { now: Timestamp::UNIX_EPOCH, ..Writer::internal(&server, "test") };
        let changed = update::modify(&server, resource, &key, subresource, writer, |old| {
            let mut new = old.clone();
            change(&mut new);
            Ok(new)
        });
        changed.map(drop).map_err(|error| error.message.clone())
    };
    change(Subresource::Status, &|claim| claim["status"]["phase"] = "Bound".into()).unwrap();
    let grow = |storage: &'static str| {
        change(Subresource::Main, &|claim| claim["spec"]["resources"]["requests"]["storage"] = storage.into())
    };
    assert_eq!(grow("4Gi"), Err(format!("{prefix}{large}")));
    assert_eq!(grow("3Gi"), Ok(()));
}

#[test]
fn a_range_without_a_name_gets_one() {
    let server = server(&[]);
    let range = insert(&server, "limitranges", json!({"spec": {"limits": []}})).unwrap();
    assert_eq!(range["metadata"]["name"], range["metadata"]["uid"]);
}

/// A float of 0.07 / 0.01 is above 7.
#[test]
fn a_ratio_that_is_the_bound_is_admitted() {
    let ranges = [json!([{"type": "Container", "maxLimitRequestRatio": {"cpu": "7"}}])];
    let asks = |request: &str, limit: &str| {
        let resources = json!({"requests": {"cpu": request}, "limits": {"cpu": limit}});
        refusal(&ranges, pod(json!([container("c", &resources)])))
    };
    for (request, limit) in [("10m", "70m"), ("5m", "35m"), ("1", "7")] {
        assert_eq!(asks(request, limit), None, "{limit}/{request}");
    }
    assert!(asks("10m", "71m").is_some());
}

#[test]
fn a_pod_gets_no_field_that_has_no_default() {
    let server = server(&[json!([{"type": "Container", "default": {"memory": "7Mi"}}])]);
    let stored = insert(&server, "pods", pod(json!([container("c", &json!({}))]))).unwrap();
    assert_eq!(stored["spec"]["containers"][0]["resources"]["limits"]["memory"], "7Mi");
    assert!(stored["spec"].get("initContainers").is_none(), "{stored}");
}
