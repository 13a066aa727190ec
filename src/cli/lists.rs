//! Lists, read object by object while they arrive: others choose how large their objects are, and how many there are.

use std::pin::Pin;

use bytes::Bytes;
use futures::io::{AsyncBufRead, AsyncBufReadExt as _};
use futures::stream::{Stream, TryStreamExt as _, once, try_unfold};
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;
use kube::core::request;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::readable::Readable;
use crate::cluster::list::{JsonList, ListError};

/// The objects of a list, which are those of one time. An object that cannot be read is left out, with a line in the log.
/// Times are no reason for that: see [`Readable`].
pub(super) fn objects<K>(api: Api<K>, params: &ListParams) -> impl Stream<Item = kube::Result<K>> + use<K>
where
    K: Resource + DeserializeOwned,
{
    views(api, params)
}

/// The same, of the fields of the objects that a view has.
pub(super) fn views<K, V>(api: Api<K>, params: &ListParams) -> impl Stream<Item = kube::Result<V>> + use<K, V>
where
    K: Resource,
    V: DeserializeOwned,
{
    let request = kube::core::Request::new(api.resource_url()).list(params);
    read(api.into_client(), request, Unread::LeftOut)
}

/// The same, of the metadata of the objects.
pub(super) fn metadata<K>(
    api: Api<K>,
    params: &ListParams,
) -> impl Stream<Item = kube::Result<ObjectMeta>> + use<K>
where
    K: Resource,
{
    metadata_with(api, params, Unread::LeftOut)
}

/// All objects of a list. If one of them cannot be read, the list ends with an error that names it.
pub(super) fn all_objects<K>(api: Api<K>, params: &ListParams) -> impl Stream<Item = kube::Result<K>> + use<K>
where
    K: Resource + DeserializeOwned,
{
    let request = kube::core::Request::new(api.resource_url()).list(params);
    read(api.into_client(), request, Unread::Fails)
}

/// The same, of the metadata of the objects.
pub(super) fn all_metadata<K>(
    api: Api<K>,
    params: &ListParams,
) -> impl Stream<Item = kube::Result<ObjectMeta>> + use<K>
where
    K: Resource,
{
    metadata_with(api, params, Unread::Fails)
}

fn metadata_with<K>(
    api: Api<K>,
    params: &ListParams,
    unread: Unread,
) -> impl Stream<Item = kube::Result<ObjectMeta>> + use<K>
where
    K: Resource,
{
    let request = kube::core::Request::new(api.resource_url()).list_metadata(params);
    read(api.into_client(), request, unread).map_ok(|object: PartialObjectMeta<()>| object.metadata)
}

/// The consequence of an object that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    LeftOut,
    Fails,
}

/// An object of a list that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{name} cannot be read: {why}")]
struct Illegible {
    /// `NAMESPACE/NAME`, as far as there are such fields.
    name: String,
    why: serde_json::Error,
}

impl Illegible {
    fn of(json: &[u8], why: serde_json::Error) -> Self {
        let object: Value = serde_json::from_slice(json).unwrap_or_default();
        let field = |name: &str| object["metadata"][name].as_str().unwrap_or("?").to_owned();
        Self { name: format!("{}/{}", field("namespace"), field("name")), why }
    }
}

fn read<T: DeserializeOwned>(
    client: Client,
    request: Result<Request<Vec<u8>>, request::Error>,
    unread: Unread,
) -> impl Stream<Item = kube::Result<T>> {
    let begun = Reading::begin(client, request, unread);
    once(begun).map_ok(|reading| try_unfold(reading, Reading::next)).try_flatten()
}

/// A list that is being read.
struct Reading {
    body: Pin<Box<dyn AsyncBufRead + Send>>,
    list: JsonList,
    unread: Unread,
}

impl Reading {
    async fn begin(
        client: Client,
        request: Result<Request<Vec<u8>>, request::Error>,
        unread: Unread,
    ) -> kube::Result<Self> {
        let body = client.request_stream(request.map_err(kube::Error::BuildRequest)?).await?;
        Ok(Self { body: Box::pin(body), list: JsonList::default(), unread })
    }

    async fn next<T: DeserializeOwned>(mut self) -> kube::Result<Option<(T, Self)>> {
        loop {
            while let Some(json) = self.list.next().map_err(broken)? {
                let error = match serde_json::from_slice(&json) {
                    Ok(Readable(object)) => return Ok(Some((object, self))),
                    Err(error) => Illegible::of(&json, error),
                };
                match self.unread {
                    Unread::LeftOut => tracing::warn!(%error, "an object of a list is left out"),
                    Unread::Fails => return Err(kube::Error::ReadEvents(std::io::Error::other(error))),
                }
            }
            let piece = Bytes::copy_from_slice(self.body.fill_buf().await.map_err(kube::Error::ReadEvents)?);
            if piece.is_empty() {
                self.list.end().map_err(broken)?;
                return Ok(None);
            }
            self.body.consume_unpin(piece.len());
            self.list.push(piece);
        }
    }
}

fn broken(error: ListError) -> kube::Error {
    kube::Error::ReadEvents(std::io::Error::other(error))
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]

    use std::convert::Infallible;

    use bytes::Bytes;
    use futures::stream::{self, Stream, StreamExt as _};
    use http::{Request, Response};
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use kube::client::Body;
    use tokio::sync::mpsc;

    use super::*;
    use crate::cli::job_view::{JobView, all_jobs};

    /// A client whose one answer has these pieces.
    pub(in crate::cli) fn answering(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Client {
        let body = StreamBody::new(pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece))));
        let mut body = Some(body);
        let answer = tower::service_fn(move |_: Request<Body>| {
            let answer = Response::new(body.take().unwrap());
            async { Ok::<_, Infallible>(answer) }
        });
        Client::new(answer, "default")
    }

    fn names(jobs: Vec<JobView>) -> Vec<String> {
        jobs.into_iter().filter_map(|job| job.metadata.name).collect()
    }

    async fn listed(pieces: &'static [&'static str]) -> kube::Result<Vec<String>> {
        let client = answering(stream::iter(pieces).map(|piece| Bytes::from_static(piece.as_bytes())));
        objects(all_jobs(&client), &ListParams::default()).try_collect().await.map(names)
    }

    #[tokio::test]
    async fn an_object_is_read_before_the_next_arrives() {
        let (sender, receiver) = mpsc::unbounded_channel();
        let pieces = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
        let client = answering(pieces);
        let mut jobs = std::pin::pin!(objects(all_jobs(&client), &ListParams::default()));
        sender
            .send(Bytes::from(
                r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"},"spec":{}}"#,
            ))
            .unwrap();
        assert_eq!(jobs.try_next().await.unwrap().unwrap().metadata.name.unwrap(), "a");
        sender.send(Bytes::from(r#",{"metadata":{"name":"b"},"spec":{}}]}"#)).unwrap();
        assert_eq!(jobs.try_next().await.unwrap().unwrap().metadata.name.unwrap(), "b");
        drop(sender);
        assert!(jobs.try_next().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_left_out() {
        const LIST: [&str; 2] = [
            r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"},"spec":{}},"#,
            r#"{"metadata":{"name":1},"spec":{}},{"metadata":{"name":"c"},"spec":{"managedBy":"x"}}]}"#,
        ];
        assert_eq!(listed(&LIST).await.unwrap(), ["a", "c"]);
    }

    #[tokio::test]
    async fn a_list_of_all_objects_names_what_cannot_be_read() {
        const LIST: &str = r#"{"metadata":{"resourceVersion":"7"},"items":[
            {"metadata":{"namespace":"ml","name":"a","finalizers":1},"spec":{}}]}"#;
        let client = || answering(stream::iter([Bytes::from_static(LIST.as_bytes())]));
        let params = ListParams::default();
        let jobs: kube::Result<Vec<JobView>> = all_objects(all_jobs(&client()), &params).try_collect().await;
        let pods: kube::Result<Vec<ObjectMeta>> =
            all_metadata(all_jobs(&client()), &params).try_collect().await;
        for error in [jobs.unwrap_err(), pods.unwrap_err()] {
            assert!(error.to_string().contains("ml/a cannot be read"), "{error}");
        }
    }

    #[tokio::test]
    async fn no_time_that_an_api_server_stores_leaves_an_object_out() {
        const LIST: [&str; 1] = [r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a",
            "creationTimestamp":"9999-12-31T23:59:59Z","managedFields":[{"time":"9999-12-31T23:59:59Z"}]},"spec":{}}]}"#];
        assert_eq!(listed(&LIST).await.unwrap(), ["a"]);
    }

    #[tokio::test]
    async fn a_list_that_breaks_off_is_an_error() {
        const BEGIN: &str =
            r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"},"spec":{}},"#;
        assert!(listed(&[BEGIN]).await.is_err());
        assert!(listed(&[]).await.is_err());
    }
}
