//! Live reads of single objects, each of which is decoded once for all callers that ask for it
//! meanwhile.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Uri, header};

use super::{ReadError, Reader};
use crate::cluster::joined_reads::JoinedReads;
use crate::cluster::resource::Resource;
use crate::cluster::wire::{Bare, DecodeError, Decoder, JSON, guarded};
use crate::job::uid::Uid;

/// The live reads of one kind of object. Clones are the same reads.
#[derive(Clone)]
pub(super) struct Kind<D: Decoder> {
    resource: Resource,
    pub(super) decoder: D,
    uid: fn(&D::Object) -> &Uid,
    reads: JoinedReads<Result<Option<Found<D::Object>>, ReadError>>,
}

/// An object that exists.
#[derive(Clone)]
struct Found<T> {
    /// `metadata.uid`, unless that cannot be read.
    uid: Option<Uid>,
    object: Result<T, Arc<DecodeError>>,
}

impl<D: Decoder<Object: Clone + Sync>> Kind<D> {
    pub(super) fn new(resource: Resource, decoder: D, uid: fn(&D::Object) -> &Uid) -> Self {
        Self { resource, decoder, uid, reads: JoinedReads::default() }
    }

    /// The object of this name. Returns `None` if there is none, or if the object, readable or
    /// not, has another UID than the requested one.
    pub(super) async fn get(
        &self,
        reader: &Reader,
        namespace: &str,
        name: &str,
        uid: Option<&Uid>,
    ) -> Result<Option<D::Object>, ReadError> {
        let path = self.resource.object_path(namespace, name);
        let uri = Uri::try_from(path.as_str()).map_err(http::Error::from)?;
        let namespace: Arc<str> = namespace.into();
        let (this, reads, of) = (self.clone(), reader.clone(), namespace.clone());
        let read = async move || {
            let mut request = Request::new(Bytes::new());
            *request.uri_mut() = uri;
            request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(JSON));
            let answer = reads.send("get", this.resource, request, Some(&of)).await?;
            Ok(answer.map(|json| this.decode(&json)))
        };
        let found = self.reads.read(&reader.gate, &path, namespace, reader.asker.clone(), read).await?;
        let is_another = |found: &Found<D::Object>| {
            uid.zip(found.uid.as_ref()).is_some_and(|(wanted, found)| wanted != found)
        };
        match found.filter(|found| !is_another(found)) {
            Some(found) => found.object.map(Some).map_err(ReadError::Unreadable),
            None => Ok(None),
        }
    }

    fn decode(&self, json: &[u8]) -> Found<D::Object> {
        let object = self.decoder.decode(json).map_err(Arc::new);
        let uid = match &object {
            Ok(object) => Some((self.uid)(object).clone()),
            Err(_) => guarded(|| Ok(serde_json::from_slice::<Bare<'_>>(json)?.metadata.uid))
                .ok()
                .flatten()
                .map(|uid| Uid::from(&*uid)),
        };
        Found { uid, object }
    }
}
