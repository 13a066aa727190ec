//! Tokens of ServiceAccounts, as clients ask for them, in virtual time.

use serde_json::{Value, json};

use super::client::{Client, JSON, pod};
use crate::authentication::ISSUER;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const TOKENS: &str = "/api/v1/namespaces/default/serviceaccounts/robot/token";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server with the account `robot` and its pod `p`, and the UID of that.
async fn robot() -> (Client, Value) {
    let client = Client::new(7);
    let account = client.post(ACCOUNTS, &json!({"metadata": {"name": "robot"}})).await;
    assert_eq!(account.code, 201, "{}", account.text());
    let uid = make_pod(&client).await;
    (client, uid)
}

async fn make_pod(client: &Client) -> Value {
    let mut pod = pod("p", "a");
    pod["spec"]["serviceAccountName"] = "robot".into();
    let pod = client.post(PODS, &pod).await;
    assert_eq!(pod.code, 201, "{}", pod.text());
    pod.json()["metadata"]["uid"].clone()
}

/// The answer to a request for a token with this spec.
async fn issue(client: &Client, spec: Value) -> Value {
    let answer = client.post(TOKENS, &json!({ "spec": spec })).await;
    assert_eq!(answer.code, 201, "{}", answer.text());
    answer.json()
}

async fn review(client: &Client, issued: &Value, audiences: &[&str]) -> Value {
    let spec = json!({"token": issued["status"]["token"], "audiences": audiences});
    client.post(REVIEWS, &json!({ "spec": spec })).await.json()["status"].clone()
}

fn bound_to(uid: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid})
}

/// The claims of a token, as anybody can read them.
fn claims(issued: &Value) -> Value {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let token = issued["status"]["token"].as_str().unwrap();
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    serde_json::from_slice(&claims).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_token_has_the_claims_of_kubernetes() {
    let (client, uid) = robot().await;
    let begin = 1_767_225_600;
    let issued = issue(&client, json!({"boundObjectRef": bound_to(&uid), "audiences": ["vault"]})).await;
    assert_eq!(
        (&issued["kind"], &issued["spec"]["expirationSeconds"]),
        (&json!("TokenRequest"), &json!(3600))
    );
    assert_eq!(issued["status"]["expirationTimestamp"], "2026-01-01T01:00:00Z");
    let mut claims = claims(&issued);
    let account = client.get(&format!("{ACCOUNTS}/robot")).await.json()["metadata"]["uid"].clone();
    assert!(claims["jti"].take().is_string());
    assert_eq!(
        claims,
        json!({
            "aud": ["vault"], "exp": begin + 3600, "iat": begin, "nbf": begin, "iss": ISSUER, "jti": null,
            "sub": "system:serviceaccount:default:robot",
            "kubernetes.io": {
                "namespace": "default", "pod": {"name": "p", "uid": uid},
                "serviceaccount": {"name": "robot", "uid": account},
            },
        })
    );
    assert_eq!(review(&client, &issued, &["vault", "other"]).await["audiences"], json!(["vault"]));
    assert_eq!(review(&client, &issued, &[]).await["authenticated"], Value::Null, "not for the API server");
    let own = issue(&client, json!({})).await;
    let status = review(&client, &own, &[]).await;
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!([ISSUER])));
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:robot");
    assert_eq!(status["user"]["uid"], account);
}

#[tokio::test(start_paused = true)]
async fn a_token_ends_with_its_time() {
    let (client, _) = robot().await;
    let issued = issue(&client, json!({"expirationSeconds": 600})).await;
    for (seconds, error) in [(660, Value::Null), (1, json!("service account token has expired"))] {
        client.clock.advance(seconds);
        assert_eq!(review(&client, &issued, &[]).await["error"], error);
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_ends_with_its_pod_and_its_account() {
    let (client, uid) = robot().await;
    let bound = issue(&client, json!({"boundObjectRef": bound_to(&uid)})).await;
    let unbound = issue(&client, json!({})).await;
    let is_valid = async |issued: &Value| review(&client, issued, &[]).await["authenticated"] == true;
    assert!(is_valid(&bound).await && is_valid(&unbound).await);
    client.send("DELETE", &format!("{PODS}/p?gracePeriodSeconds=0"), JSON, "", "").await;
    assert!(!is_valid(&bound).await && is_valid(&unbound).await);
    make_pod(&client).await;
    assert!(!is_valid(&bound).await, "another pod of the same name");
    client.send("DELETE", &format!("{ACCOUNTS}/robot"), JSON, "", "").await;
    assert!(!is_valid(&unbound).await);
    client.post(ACCOUNTS, &json!({"metadata": {"name": "robot"}})).await;
    assert!(!is_valid(&unbound).await, "another account of the same name");
}

#[tokio::test(start_paused = true)]
async fn a_request_for_a_token_is_checked() {
    let (client, uid) = robot().await;
    client.post(ACCOUNTS, &json!({"metadata": {"name": "other"}})).await;
    client.post(PODS, &pod("of-default", "a")).await;
    let spec = |spec: Value| json!({ "spec": spec });
    let reference = |kind: &str, name: &str, uid: Value| json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}}});
    for (body, code, message) in [
        (
            spec(json!({"expirationSeconds": 599})),
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 599: may not \
             specify a duration less than 10 minutes",
        ),
        (spec(json!({"expirationSeconds": 4_294_967_297_i64})), 422, "larger than 2^32 seconds"),
        (spec(json!({"expirationSeconds": "1h"})), 400, "cannot be handled as a TokenRequest"),
        (json!({"metadata": {"name": "other"}}), 422, "must match the service account name if specified"),
        (
            json!({"metadata": {"namespace": "n"}}),
            422,
            "must match the service account namespace if specified",
        ),
        (reference("Pod", "p", json!("other")), 409, "the UID in the bound object reference (other)"),
        (reference("Pod", "none", Value::Null), 404, "pods \"none\" not found"),
        (reference("Pod", "of-default", Value::Null), 400, "running with different serviceaccount name"),
        (reference("Secret", "s", Value::Null), 400, "cannot bind token to object of type /v1, Kind=Secret"),
        (json!({"kind": "Pod", "apiVersion": "v1"}), 400, "TokenRequest"),
    ] {
        let answer = client.post(TOKENS, &body).await;
        let text = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(answer.code, code, "{body}: {text}");
        assert!(text.contains(message), "{body}: {text}");
    }
    let missing = client.post(&TOKENS.replace("robot", "none"), &json!({})).await;
    assert_eq!(
        (missing.code, missing.json()["message"].as_str()),
        (404, Some("serviceaccounts \"none\" not found"))
    );
    assert_eq!(client.get(TOKENS).await.code, 405);
    // A pod that names no account has the usual one.
    client.post(ACCOUNTS, &json!({"metadata": {"name": "default"}})).await;
    let of_default = TOKENS.replace("robot", "default");
    let answer = client.post(&of_default, &reference("Pod", "of-default", Value::Null)).await;
    assert_eq!(answer.code, 201, "{}", answer.text());
    assert!(issue(&client, json!({"boundObjectRef": bound_to(&uid)})).await["status"]["token"].is_string());
}

/// The API server refuses a token in a pod that names no account. Its admission of ServiceAccounts names one
/// first.
#[tokio::test(start_paused = true)]
async fn a_pod_that_wants_a_token_names_its_account() {
    let client = Client::new(7);
    let mut wanting = pod("wanting", "a");
    wanting["spec"]["volumes"] =
        json!([{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]);
    let stored = client.post(PODS, &wanting).await.json();
    assert_eq!(stored["spec"]["serviceAccountName"], "default", "{stored}");
    let stored = client.post(PODS, &pod("plain", "a")).await.json();
    assert_eq!(stored["spec"]["serviceAccountName"], Value::Null);
}
