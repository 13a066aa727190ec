//! A request and its answer: path, query, options, body, the requested form, and the reply. Verbs are built
//! on these, and [`http`](crate::http) carries them over connections.

pub(crate) mod decode;
pub(crate) mod delete_options;
pub(crate) mod media;
pub(crate) mod openapi;
pub(crate) mod options;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod reply;
pub(crate) mod request;
mod warnings;
