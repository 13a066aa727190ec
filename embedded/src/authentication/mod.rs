//! The sender of a request: a user by bearer token, a ServiceAccount by a token of its own, or anybody.

mod account_token;
mod token;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, header};

pub(crate) use self::account_token::{
    Account, AccountKey, Bound, ISSUER, InvalidAccountToken, Reference, TokenClaims,
};
pub use self::token::{Token, TokenError};
use crate::authorization::User;

/// The user as whom the API server asks kubelets for logs.
pub(crate) const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

/// How the API server knows who may send requests.
#[derive(Clone, Debug, Default)]
pub enum Authentication {
    /// By a token of 256 random bits, which the server makes, and keeps in its data directory if it has one.
    #[default]
    Generated,
    /// By this token.
    Token(Token),
    /// Not at all. Every process of this machine, of whatever user, may do everything that the server can.
    Anonymous,
}

/// The tokens of a server that outlive all objects.
pub(crate) struct Authenticator {
    /// The token of the server's owner; `None` if requests need no token.
    owner: Option<Token>,
    administrator: Arc<User>,
    users: Vec<(Token, Arc<User>)>,
    /// The token that the server shows to kubelets. It is valid for them alone: a kubelet sees it.
    kubelet_client: Token,
}

impl Authenticator {
    /// An authenticator for the owner and these users by token.
    ///
    /// # Errors
    ///
    /// If the token of a user is none.
    pub(crate) fn new(owner: Option<Token>, users: BTreeMap<String, User>) -> Result<Self, TokenError> {
        let users = users.into_iter().map(|(token, user)| Ok((Token::new(&token)?, Arc::new(user))));
        Ok(Self {
            owner,
            administrator: Arc::new(User::administrator()),
            users: users.collect::<Result<_, TokenError>>()?,
            kubelet_client: Token::random(),
        })
    }

    /// The owner's token; `None` if requests need no token.
    pub(crate) fn owner(&self) -> Option<&Token> {
        self.owner.as_ref()
    }

    /// The token for requests to kubelets.
    pub(crate) fn kubelet_client(&self) -> &Token {
        &self.kubelet_client
    }

    /// Whether any user has a token. Where none has, none is wrong.
    pub(crate) fn has_users(&self) -> bool {
        self.owner.is_some() || !self.users.is_empty()
    }

    /// The user that a token review names.
    pub(crate) fn review(&self, sent: &str) -> Option<Arc<User>> {
        if self.kubelet_client.is(sent) {
            return Some(Arc::new(User::new(KUBELET_CLIENT, &[])));
        }
        self.user(sent)
    }

    /// The user of a token.
    pub(crate) fn user(&self, sent: &str) -> Option<Arc<User>> {
        let owner = self.owner.iter().map(|token| (token, &self.administrator));
        let users = self.users.iter().map(|(token, user)| (token, user));
        owner.chain(users).find(|(token, _)| token.is(sent)).map(|(_, user)| Arc::clone(user))
    }
}

/// The bearer token of a request, read as Kubernetes reads it.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut words = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim().split(' ');
    let scheme = words.next()?;
    words.next().filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn headers(authorization: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, authorization.parse().unwrap())])
    }

    #[test]
    fn the_scheme_is_read_as_kubernetes_reads_it() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            (" BEARER abc more", Some("abc")),
            ("Bearer", None),
            ("Bearer  abc", None),
            ("Basic abc", None),
            ("abc", None),
        ] {
            assert_eq!(bearer_token(&headers(value)), token, "{value}");
        }
    }

    #[test]
    fn each_token_is_of_one_user() {
        let owner = Token::random();
        let users = BTreeMap::from([("j".to_owned(), User::new("jane", &[]))]);
        let all = Authenticator::new(Some(owner.clone()), users).unwrap();
        let name = |token: &str| all.user(token).map(|user| user.name.clone());
        assert_eq!(name("j").as_deref(), Some("jane"));
        assert_eq!(name(owner.expose()).as_deref(), Some("kubernetes-admin"));
        assert_eq!(name("k"), None);
        // The token for kubelets opens nothing here.
        let for_kubelets = all.kubelet_client().expose().to_owned();
        assert_eq!(name(&for_kubelets), None);
        assert_eq!(all.review(&for_kubelets).unwrap().name, KUBELET_CLIENT);
    }
}
