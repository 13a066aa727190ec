//! The rules for reading each page.
//!
//! `/livez`, `/readyz` and `/healthz` are public. A page on loopback is also in reach of every web site that
//! a browser on the same machine shows. So requests to a page that is not public must name this host in
//! `Host`, and must not come from another site. A site that rebinds its own name to 127.0.0.1 names itself.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::reviews::{Reviews, Verdict};
use super::secret::Secret;
use super::server::Ends;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The rule for reading a page.
#[derive(Clone)]
pub enum Access {
    /// Every client that reaches the port.
    Everyone,
    /// Processes of this host: `kubectl port-forward` comes from the pod's own loopback address.
    Loopback,
    /// Clients that send the secret as a bearer token.
    Secret(Secret),
    /// Users whose bearer token the cluster knows, and who have the right to `get` the path.
    Authorized(Arc<Reviews>),
    /// The page does not exist.
    Off,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    NoPage,
    OtherHost,
    ForeignName,
    ForeignSite,
    NoToken,
    UnknownToken,
    Forbidden,
    NoVerdict,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::NoPage => (StatusCode::NOT_FOUND, ""),
            Self::OtherHost => (
                StatusCode::FORBIDDEN,
                "only for processes of this host: use `kubectl port-forward`, or --debug-access\n",
            ),
            Self::ForeignName => {
                (StatusCode::FORBIDDEN, "the Host header must be localhost or its address\n")
            }
            Self::ForeignSite => (StatusCode::FORBIDDEN, "requests of other web sites are refused\n"),
            Self::NoToken => (StatusCode::UNAUTHORIZED, "a bearer token is required\n"),
            Self::UnknownToken => (StatusCode::UNAUTHORIZED, "the bearer token is not known\n"),
            Self::Forbidden => (StatusCode::FORBIDDEN, "no right to get this path (nonResourceURLs)\n"),
            Self::NoVerdict => (StatusCode::SERVICE_UNAVAILABLE, "the API server gave no verdict\n"),
        };
        match status {
            StatusCode::UNAUTHORIZED => {
                (status, [(header::WWW_AUTHENTICATE, "Bearer")], text).into_response()
            }
            _ => (status, text).into_response(),
        }
    }
}

/// Lets a request pass if its sender may read the page.
pub(super) async fn guard(State(access): State<Access>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match permit(&access, &head).await {
        Ok(()) => next.run(Request::from_parts(head, body)).await,
        Err(refusal) => refusal.into_response(),
    }
}

async fn permit(access: &Access, request: &Parts) -> Result<(), Refusal> {
    match access {
        Access::Everyone => return Ok(()),
        Access::Off => return Err(Refusal::NoPage),
        Access::Loopback | Access::Secret(_) | Access::Authorized(_) => {}
    }
    let headers = &request.headers;
    own_site(headers)?;
    match access {
        Access::Loopback => {
            from_this_host(request.extensions.get::<Ends>().ok_or(Refusal::OtherHost)?, headers)?;
            names_this_host(headers)
        }
        Access::Secret(secret) => {
            if secret.is(bearer(headers).ok_or(Refusal::NoToken)?) {
                Ok(())
            } else {
                Err(Refusal::UnknownToken)
            }
        }
        Access::Authorized(reviews) => {
            let token = bearer(headers).ok_or(Refusal::NoToken)?;
            match reviews.verdict(token, request.uri.path()).await {
                Some(Verdict::Allowed) => Ok(()),
                Some(Verdict::Forbidden) => Err(Refusal::Forbidden),
                Some(Verdict::Unknown) => Err(Refusal::UnknownToken),
                None => Err(Refusal::NoVerdict),
            }
        }
        Access::Everyone | Access::Off => Ok(()),
    }
}

/// Headers of proxies, such as those of a service mesh, which pass requests of other hosts on from loopback.
const FORWARDED: [HeaderName; 4] = [
    header::FORWARDED,
    header::VIA,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-envoy-external-address"),
];

/// A client of this host has both ends of its connection on loopback. A proxy beside the controller connects to the
/// address of the pod, or says for whom it asks.
fn from_this_host(ends: &Ends, headers: &HeaderMap) -> Result<(), Refusal> {
    // A listener at `[::]` shows IPv4 clients as ::ffff:127.0.0.1.
    let on_loopback = [ends.peer, ends.own].iter().all(|end| end.ip().to_canonical().is_loopback());
    let forwarded = FORWARDED.iter().any(|name| headers.contains_key(name));
    if on_loopback && !forwarded { Ok(()) } else { Err(Refusal::OtherHost) }
}

fn names_this_host(headers: &HeaderMap) -> Result<(), Refusal> {
    let host = text(headers, &header::HOST).and_then(|host| host.parse::<Authority>().ok());
    let host = host.ok_or(Refusal::ForeignName)?;
    let name = host.host().trim_matches(['[', ']']);
    let own = name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    if own { Ok(()) } else { Err(Refusal::ForeignName) }
}

/// Refuses requests that a browser sends on behalf of another web site.
fn own_site(headers: &HeaderMap) -> Result<(), Refusal> {
    let same_site = text(headers, &SEC_FETCH_SITE).is_none_or(|site| matches!(site, "same-origin" | "none"));
    let host = text(headers, &header::HOST).unwrap_or_default();
    let same_origin = !headers.contains_key(header::ORIGIN)
        || text(headers, &header::ORIGIN).is_some_and(|origin| {
            origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host))
        });
    if same_site && same_origin { Ok(()) } else { Err(Refusal::ForeignSite) }
}

/// The bearer token of a request.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = text(headers, &header::AUTHORIZATION)?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    // Bytes that are no text match nothing.
    headers.get(name).map(|value| value.to_str().unwrap_or(""))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::SocketAddr;

    use super::*;

    async fn verdict(access: &Access, peer: &str, headers: &[(&str, &str)]) -> Result<(), Refusal> {
        let mut request = axum::http::Request::builder().uri("/debug/shards");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        let peer: SocketAddr = peer.parse().unwrap();
        let own = if peer.ip().to_canonical().is_loopback() { "127.0.0.1:8080" } else { "10.0.0.1:8080" };
        head.extensions.insert(Ends { peer, own: own.parse().unwrap() });
        permit(access, &head).await
    }

    #[tokio::test]
    async fn loopback_is_for_programs_of_this_host_and_not_for_web_sites() {
        let local = ("host", "localhost:8080");
        for (peer, headers, expected) in [
            ("127.0.0.1:5", vec![local], Ok(())),
            ("127.0.0.1:5", vec![("host", "127.0.0.1:8080")], Ok(())),
            ("[::1]:5", vec![("host", "[::1]:8080")], Ok(())),
            ("[::ffff:127.0.0.1]:5", vec![("host", "LOCALHOST")], Ok(())),
            ("10.0.0.7:5", vec![local], Err(Refusal::OtherHost)),
            ("[::ffff:10.0.0.7]:5", vec![local], Err(Refusal::OtherHost)),
            ("127.0.0.1:5", vec![local, ("x-forwarded-for", "10.0.0.7")], Err(Refusal::OtherHost)),
            ("127.0.0.1:5", vec![], Err(Refusal::ForeignName)),
            ("127.0.0.1:5", vec![("host", "rebound.example:8080")], Err(Refusal::ForeignName)),
            ("127.0.0.1:5", vec![("host", "localhost.example")], Err(Refusal::ForeignName)),
            ("127.0.0.1:5", vec![("host", "127.0.0.1.example")], Err(Refusal::ForeignName)),
            ("127.0.0.1:5", vec![("host", "10.0.0.7")], Err(Refusal::ForeignName)),
            ("127.0.0.1:5", vec![("host", "evil@localhost:8080@rebound.example")], Err(Refusal::ForeignName)),
            ("127.0.0.1:5", vec![local, ("sec-fetch-site", "same-origin")], Ok(())),
            ("127.0.0.1:5", vec![local, ("sec-fetch-site", "none")], Ok(())),
            ("127.0.0.1:5", vec![local, ("sec-fetch-site", "cross-site")], Err(Refusal::ForeignSite)),
            ("127.0.0.1:5", vec![local, ("sec-fetch-site", "same-site")], Err(Refusal::ForeignSite)),
            ("127.0.0.1:5", vec![local, ("origin", "http://localhost:8080")], Ok(())),
            ("127.0.0.1:5", vec![local, ("origin", "http://localhost:9999")], Err(Refusal::ForeignSite)),
            ("127.0.0.1:5", vec![local, ("origin", "https://evil.example")], Err(Refusal::ForeignSite)),
            ("127.0.0.1:5", vec![local, ("origin", "null")], Err(Refusal::ForeignSite)),
        ] {
            assert_eq!(verdict(&Access::Loopback, peer, &headers).await, expected, "{peer} {headers:?}");
        }
    }

    #[test]
    fn a_proxy_beside_the_controller_is_not_this_host() {
        let ends = |peer: &str, own: &str| Ends { peer: peer.parse().unwrap(), own: own.parse().unwrap() };
        let none = HeaderMap::new();
        assert_eq!(from_this_host(&ends("127.0.0.6:5", "10.0.0.1:8080"), &none), Err(Refusal::OtherHost));
        assert_eq!(from_this_host(&ends("[::1]:5", "[::1]:8080"), &none), Ok(()));
    }

    #[tokio::test]
    async fn a_secret_is_needed_wherever_the_request_comes_from() {
        let access = Access::Secret(Secret::new("s3cret"));
        for (headers, expected) in [
            (vec![], Err(Refusal::NoToken)),
            (vec![("authorization", "Basic s3cret")], Err(Refusal::NoToken)),
            (vec![("authorization", "Bearer ")], Err(Refusal::NoToken)),
            (vec![("authorization", "Bearer s3cre")], Err(Refusal::UnknownToken)),
            (vec![("authorization", "bearer s3cret")], Ok(())),
            (
                vec![("authorization", "Bearer s3cret"), ("sec-fetch-site", "cross-site")],
                Err(Refusal::ForeignSite),
            ),
        ] {
            assert_eq!(verdict(&access, "127.0.0.1:5", &headers).await, expected, "{headers:?}");
        }
    }

    #[tokio::test]
    async fn everybody_and_nobody() {
        let foreign = [("host", "evil.example"), ("sec-fetch-site", "cross-site")];
        assert_eq!(verdict(&Access::Everyone, "10.0.0.7:5", &foreign).await, Ok(()));
        assert_eq!(
            verdict(&Access::Off, "127.0.0.1:5", &[("host", "localhost")]).await,
            Err(Refusal::NoPage)
        );
    }
}
