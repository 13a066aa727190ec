//! The roles and bindings that exist from the start where access is controlled.

use super::{Writer, create};
use crate::authorization::default_objects;
use crate::error::ApiError;
use crate::object::{self, meta};
use crate::resources;
use crate::server::Server;

/// Creates the default roles and bindings that do not exist yet.
pub(crate) fn bootstrap(server: &Server) -> Result<(), ApiError> {
    if server.authorizer.is_none() {
        return Ok(());
    }
    for (plural, object) in default_objects() {
        let kind = resources::stored(plural).ok_or_else(ApiError::no_resource)?;
        if server.table(kind).get(&object::key(None, meta(&object, "name"))).is_none() {
            create::insert(server, kind, None, object, Writer::internal(server, "kube-apiserver"))?;
        }
    }
    Ok(())
}
