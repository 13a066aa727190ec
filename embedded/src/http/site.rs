//! Which web pages may send requests: only the server's own.
//!
//! A browser sends requests to loopback for every page that it shows. A page whose name leads to loopback
//! (DNS rebinding) gives itself away by `Host`, any other by `Origin` or `Sec-Fetch-Site`. Clients other than
//! browsers send the server's name as `Host`, and neither `Origin` nor `Sec-Fetch-Site`.

use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Version, header};

use crate::error::ApiError;
use crate::host_names::HostNames;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses a request that is addressed to another server, or that comes from a page of another.
pub(super) fn check(names: &HostNames, parts: &Parts) -> Result<(), ApiError> {
    let host = host(&parts.headers, parts.version)?;
    let addressed = parts.uri.authority().map(Authority::as_str);
    for authority in [addressed, host].into_iter().flatten() {
        if !is_own(names, authority) {
            return Err(ApiError::foreign_site("Host", authority));
        }
    }
    if let Some(origin) = parts.headers.get(header::ORIGIN) {
        let page = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        let own = page.zip(host).is_some_and(|((scheme, page), host)| {
            matches!(scheme, "http" | "https") && page.eq_ignore_ascii_case(host)
        });
        if !own {
            return Err(ApiError::foreign_site("Origin", &shown(origin)));
        }
    }
    // `none` is a user who types the address. A page of another port of this host is `same-site`.
    match parts.headers.get(SEC_FETCH_SITE) {
        Some(site) if site != "same-origin" && site != "none" => {
            Err(ApiError::foreign_site("Sec-Fetch-Site", &shown(site)))
        }
        _ => Ok(()),
    }
}

/// The only `Host` header, which HTTP/1.1 requires.
fn host(headers: &HeaderMap, version: Version) -> Result<Option<&str>, ApiError> {
    let mut all = headers.get_all(header::HOST).iter();
    match (all.next(), all.next()) {
        (None, _) if version < Version::HTTP_11 => Ok(None),
        (None, _) => Err(ApiError::bad_request("missing required Host header")),
        (Some(_), Some(_)) => Err(ApiError::bad_request("too many Host headers")),
        (Some(host), None) => match host.to_str() {
            Ok(host) => Ok(Some(host)),
            Err(_) => Err(ApiError::bad_request("malformed Host header")),
        },
    }
}

/// Whether an authority names this server. The port may differ, as with a tunnel.
fn is_own(names: &HostNames, authority: &str) -> bool {
    !authority.contains('@')
        && authority.parse::<Authority>().is_ok_and(|authority| names.contains(authority.host()))
}

fn shown(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use http::{Request, StatusCode};

    use super::*;

    fn code(uri: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let names = HostNames::new([127, 0, 0, 1].into(), &[]);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        check(&names, &parts).map_or_else(|error| error.code, |()| StatusCode::OK).as_u16()
    }

    #[test]
    fn a_request_is_addressed_to_this_server() {
        for host in ["localhost", "localhost:7443", "127.0.0.1:1", "[::1]:80", "LocalHost"] {
            assert_eq!(code("/api", &[("host", host)]), 200, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7443",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "",
            "a b",
        ] {
            assert_eq!(code("/api", &[("host", host)]), 403, "{host}");
        }
        assert_eq!(code("/api", &[]), 400);
        assert_eq!(code("/api", &[("host", "localhost"), ("host", "evil.example")]), 400);
        assert_eq!(code("http://evil.example/api", &[("host", "localhost")]), 403);
        assert_eq!(code("http://localhost/api", &[("host", "localhost")]), 200);
    }

    #[test]
    fn a_page_is_of_this_server() {
        let from = |name, value| code("/api", &[("host", "localhost:7443"), (name, value)]);
        for origin in ["http://evil.example", "null", "", "http://localhost", "http://localhost:3000"] {
            assert_eq!(from("origin", origin), 403, "{origin}");
        }
        assert_eq!(from("origin", "ftp://localhost:7443"), 403);
        assert_eq!(from("origin", "http://localhost:7443"), 200);
        assert_eq!(from("origin", "https://localhost:7443"), 200, "the port speaks both");
        for (site, expected) in [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)]
        {
            assert_eq!(from("sec-fetch-site", site), expected, "{site}");
        }
    }
}
