//! The sender of a request, and whether its rights allow the request. Only this module authenticates
//! requests.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, HeaderName, Method};

use super::site;
use crate::authentication::{Account, ISSUER, bearer_token};
use crate::authorization::{Attributes, User};
use crate::connections::Newcomer;
use crate::door::{Admits, Door};
use crate::error::ApiError;
use crate::server::{Network, Server};

/// The user to act as, in a request of another.
const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");

/// The sender of a request.
#[derive(Clone, Copy)]
pub(crate) enum Sender<'a> {
    /// A client of this connection, at this port. The headers of the request identify the user.
    Client(&'a Newcomer, &'a Door),
    /// This user, within the process.
    User(&'a Arc<User>),
}

/// The user of a request, if the rights of the user allow it. A request that needs no token has no user.
pub(super) fn admit(
    server: &Server,
    parts: &Parts,
    sender: Sender<'_>,
) -> Result<Option<Arc<User>>, ApiError> {
    let (connection, door, network) = match (sender, &server.network) {
        (Sender::User(user), _) => return Ok(Some(Arc::clone(user))),
        (Sender::Client(..), None) => return Err(ApiError::unauthorized()),
        (Sender::Client(connection, door), Some(network)) => (connection, door, network),
    };
    site::check(&door.names, parts)?;
    refuse_impersonation(&parts.headers)?;
    match (authenticate(server, network, door, &parts.headers)?, door.admits) {
        (Some(user), _) => {
            connection.welcome();
            authorize(server, &user, parts)?;
            Ok(Some(user))
        }
        (None, Admits::Accounts) => Err(ApiError::unauthorized()),
        (None, Admits::Everybody) => admit_without_token(server, network, connection, parts),
    }
}

/// The user whose token is among the headers; `None` without a token.
fn authenticate(
    server: &Server,
    network: &Network,
    door: &Door,
    headers: &HeaderMap,
) -> Result<Option<Arc<User>>, ApiError> {
    let (tokens, takes_all) = (&network.authenticator, door.admits == Admits::Everybody);
    // Where no user has a token, none is wrong.
    let Some(sent) = bearer_token(headers).filter(|_| !takes_all || tokens.has_users()) else {
        return Ok(None);
    };
    if let Some(user) = tokens.user(sent).filter(|_| takes_all) {
        return Ok(Some(user));
    }
    match server.account(sent, &[ISSUER]) {
        Ok(Account { user, .. }) => Ok(Some(Arc::new(user))),
        Err(invalid) => {
            tracing::debug!(%invalid, "a bearer token is refused");
            Err(ApiError::unauthorized())
        }
    }
}

fn admit_without_token(
    server: &Server,
    network: &Network,
    connection: &Newcomer,
    parts: &Parts,
) -> Result<Option<Arc<User>>, ApiError> {
    let needs_none = network.authenticator.owner().is_none();
    if needs_none {
        connection.welcome();
    }
    match server.authorizer.as_ref().and_then(|authorizer| authorizer.anonymous()) {
        Some(anonymous) => {
            authorize(server, &anonymous, parts)?;
            Ok(Some(anonymous))
        }
        None if needs_none || is_public(parts) => Ok(None),
        None => Err(ApiError::unauthorized()),
    }
}

fn authorize(server: &Server, user: &User, parts: &Parts) -> Result<(), ApiError> {
    if user.is_administrator() {
        return Ok(());
    }
    let request = Attributes::of(&parts.method, parts.uri.path(), parts.uri.query());
    server.authorize(Some(user), &request)
}

/// Refuses a request that is to be made as another user. If its headers were ignored, it would have the
/// rights of its sender.
fn refuse_impersonation(headers: &HeaderMap) -> Result<(), ApiError> {
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(());
    }
    let name = headers.get(IMPERSONATE_USER).and_then(|name| name.to_str().ok()).unwrap_or_default();
    Err(ApiError::access_denied("", "users", name, "this server does not let users impersonate others"))
}

/// Whether a request needs no token, as by the role `system:public-info-viewer`.
fn is_public(parts: &Parts) -> bool {
    let path = parts.uri.path();
    parts.method == Method::GET
        && matches!(path, "/healthz" | "/livez" | "/readyz" | "/version" | "/version/")
}
