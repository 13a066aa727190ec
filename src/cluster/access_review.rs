//! Asks the API server for the user of a token, and whether that user may read a page of ours.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::rate::Rate;
use super::transport::Transport;
use crate::telemetry::http::{Client, Reviewer, Verdict};

/// Most questions per second about each kind of client, however many strangers knock.
const QPS: u32 = 10;

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Asks with a TokenReview and a SubjectAccessReview.
#[derive(Clone)]
pub struct AccessReviewer(Arc<Inner>);

struct Inner {
    transport: Arc<dyn Transport>,
    of_known: Option<Rate>,
    of_strangers: Option<Rate>,
}

impl AccessReviewer {
    /// Asks over this transport.
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        let rate = || Rate::per_second(QPS, QPS);
        Self(Arc::new(Inner { transport, of_known: rate(), of_strangers: rate() }))
    }

    async fn ask(self, token: String, path: String, client: Client) -> Option<Verdict> {
        let rate = match client {
            Client::Known => &self.0.of_known,
            Client::Stranger => &self.0.of_strangers,
        };
        if let Some(rate) = rate {
            rate.take().await;
        }
        let spec = TokenReviewSpec { token, ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let status = self.post(TOKEN_REVIEWS, &review).await?.status?;
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Some(Verdict::Unknown);
        };
        let review = SubjectAccessReview { spec: may_get(user, path), ..SubjectAccessReview::default() };
        let status = self.post(ACCESS_REVIEWS, &review).await?.status?;
        Some(if status.allowed { Verdict::Allowed } else { Verdict::Forbidden })
    }

    /// Sends a review; `None` without a usable answer.
    async fn post<T: Serialize + DeserializeOwned>(&self, path: &str, review: &T) -> Option<T> {
        let body = serde_json::to_vec(review).ok()?;
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(Bytes::from(body))
            .ok()?;
        match self.0.transport.send(request).await {
            Ok(answer) if answer.status().is_success() => serde_json::from_slice(answer.body()).ok(),
            // The body of a refusal may repeat the token.
            Ok(answer) => {
                tracing::warn!(path, code = answer.status().as_u16(), "the API server refused a review");
                None
            }
            Err(error) => {
                tracing::warn!(path, %error, "no answer to a review");
                None
            }
        }
    }
}

impl Reviewer for AccessReviewer {
    fn review(&self, token: &str, path: &str, client: Client) -> BoxFuture<'static, Option<Verdict>> {
        Box::pin(self.clone().ask(token.to_owned(), path.to_owned(), client))
    }
}

fn may_get(user: UserInfo, path: String) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        user: user.username,
        groups: user.groups,
        uid: user.uid,
        extra: user.extra,
        non_resource_attributes: Some(NonResourceAttributes {
            path: Some(path),
            verb: Some("get".to_owned()),
        }),
        ..SubjectAccessReviewSpec::default()
    }
}
