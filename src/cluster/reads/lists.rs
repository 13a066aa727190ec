//! Live lists. Their objects are decoded one by one while they arrive, so that only kept objects take
//! memory.

use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt as _;
use http::{HeaderValue, Request, header};
use tokio::time::Instant;

use super::{ReadError, Reader, in_time};
use crate::cluster::list::{ListBody, NotRead};
use crate::cluster::read_gate::{Length, ListTurn};
use crate::cluster::resource::Resource;
use crate::cluster::transport::refusal;
use crate::cluster::watch::Selection;
use crate::cluster::wire::{DecodeError, Decoder, ObservedPod, PodDecoder, Unreadable};
use crate::telemetry::metrics::labels::ApiCallLabels;

/// `Accept` for lists of which only the metadata is wanted.
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                        application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
/// The approximate size of an unreadable object's record: its name, and the error.
const UNREADABLE_BYTES: usize = 1 << 10;

/// A complete list of pods. It has its turn until it is dropped: others wait for the memory that it takes.
#[derive(Debug)]
pub struct PodList {
    /// The pods.
    pub pods: Vec<Box<ObservedPod>>,
    /// Pods that exist and cannot be read.
    pub unreadable: Vec<Unreadable>,
    /// The version of the list: an object that it does not show was gone then.
    pub version: u64,
    _turn: ListTurn,
}

#[cfg(test)]
impl PodList {
    /// A list of these pods, with an uncontended turn.
    pub async fn of(version: u64, pods: Vec<Box<ObservedPod>>) -> Self {
        let gate = crate::cluster::read_gate::ReadGate::default();
        Self { pods, unreadable: vec![], version, _turn: gate.list_turn(Length::Long, None, None).await }
    }
}

/// A list whose turn goes on.
struct Listed<T> {
    objects: Vec<T>,
    not_read: Vec<NotRead>,
    version: u64,
    turn: ListTurn,
}

impl<T> Listed<T> {
    /// Objects that exist and cannot be read.
    ///
    /// # Errors
    /// When one of them has no name that can be read.
    fn unreadable(not_read: Vec<NotRead>) -> Result<Vec<Unreadable>, DecodeError> {
        not_read.into_iter().map(|NotRead { object, error }| object.ok_or(error)).collect()
    }
}

impl Listed<Box<ObservedPod>> {
    fn into_pods(self) -> Result<PodList, ReadError> {
        let unreadable = Self::unreadable(self.not_read)?;
        Ok(PodList { pods: self.objects, unreadable, version: self.version, _turn: self.turn })
    }
}

impl Reader {
    /// The objects of a resource in one namespace that are to be kept; `None` if the API server has no such resource. `keep` is
    /// asked with the number of those that are kept already.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn list<D: Decoder>(
        &self,
        decoder: &D,
        resource: Resource,
        namespace: &str,
        keep: impl Fn(&D::Object, usize) -> bool,
    ) -> Result<Option<Vec<D::Object>>, ReadError> {
        let selection = Selection { namespace: Some(namespace.into()), ..Selection::all(resource) };
        match self.objects(decoder, &selection, D::ACCEPT, keep).await {
            Ok(Listed { mut not_read, objects, .. }) => match not_read.pop() {
                Some(not_read) => Err(not_read.error.into()),
                None => Ok(Some(objects)),
            },
            Err(ReadError::Refused(refusal)) if refusal.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All selected objects, and those of them that exist and cannot be read.
    ///
    /// # Errors
    /// See [`ReadError`]; also when an object has no name that can be read.
    pub async fn list_selected<D: Decoder>(
        &self,
        decoder: &D,
        selection: &Selection,
    ) -> Result<(Vec<D::Object>, Vec<Unreadable>), ReadError> {
        let listed = self.objects(decoder, selection, D::ACCEPT, |_, _| true).await?;
        Ok((listed.objects, Listed::<D::Object>::unreadable(listed.not_read)?))
    }

    /// All selected pods.
    ///
    /// # Errors
    /// See [`ReadError`]; also when a pod has no name that can be read.
    pub async fn list_pods(&self, decoder: &PodDecoder, selection: &Selection) -> Result<PodList, ReadError> {
        self.objects(decoder, selection, PodDecoder::ACCEPT, |_, _| true).await?.into_pods()
    }

    /// All selected pods that are to be kept, by their metadata: they have neither spec nor status.
    ///
    /// # Errors
    /// See [`ReadError`]; also when a pod has no name that can be read: it would be taken for gone.
    pub async fn list_pod_metadata(
        &self,
        selection: &Selection,
        keep: impl Fn(&ObservedPod) -> bool,
    ) -> Result<PodList, ReadError> {
        self.objects(&self.pods.decoder, selection, METADATA, |pod, _| keep(pod)).await?.into_pods()
    }

    /// Lists the objects that are to be kept. If the answer exceeds a short list, objects that are passed
    /// over included, the list begins again in the turn of a long one. An answer that is not read
    /// meanwhile would be broken off.
    async fn objects<D: Decoder>(
        &self,
        decoder: &D,
        selection: &Selection,
        accept: &'static str,
        keep: impl Fn(&D::Object, usize) -> bool,
    ) -> Result<Listed<D::Object>, ReadError> {
        let mut request = selection.request(&[])?;
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accept));
        let namespace: Option<Arc<str>> = selection.namespace.as_deref().map(Into::into);
        let mut length = Length::Short;
        loop {
            let turn = self.gate.list_turn(length, namespace.as_ref(), self.asker.as_ref()).await;
            let (started, mut code) = (Instant::now(), 0);
            let listed = self.receive(decoder, request.clone(), &mut code, turn, &keep).await;
            if matches!(listed, Err(ReadError::Transport(_))) {
                code = 0;
            }
            let labels = ApiCallLabels { verb: "list", resource: selection.resource.plural };
            self.metrics.count_request(labels, code, started.elapsed());
            match listed? {
                Some(listed) => return Ok(listed),
                None => length = Length::Long,
            }
        }
    }

    /// Reads a list; `None` if the answer is too long for this turn.
    async fn receive<D: Decoder>(
        &self,
        decoder: &D,
        request: Request<Bytes>,
        code: &mut u16,
        turn: ListTurn,
        keep: &impl Fn(&D::Object, usize) -> bool,
    ) -> Result<Option<Listed<D::Object>>, ReadError> {
        let answer = in_time(self.transport.open(request)).await?;
        *code = answer.status().as_u16();
        match *code {
            200..300 => {}
            _ => return Err(ReadError::Refused(in_time(refusal(answer)).await?)),
        }
        let mut list = ListBody::of(answer.headers())?;
        let mut listed = Listed { objects: Vec::new(), not_read: Vec::new(), version: 0, turn };
        let mut body = answer.into_body();
        while let Some(piece) = in_time(body.try_next()).await? {
            list.push(piece);
            while let Some(object) = list.next(decoder)? {
                let bytes = match object {
                    Ok(object) => {
                        let bytes = D::bytes(&object);
                        if keep(&object, listed.objects.len()) {
                            listed.objects.push(object);
                        }
                        bytes
                    }
                    Err(not_read) => {
                        listed.not_read.push(not_read);
                        UNREADABLE_BYTES
                    }
                };
                if !listed.turn.has_room(bytes) {
                    return Ok(None);
                }
            }
        }
        listed.version = list.end()?;
        Ok(Some(listed))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use serde_json::{Value, json};
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::cluster::read_gate::SHORT_LIST;
    use crate::cluster::test_api::TestApi;
    use crate::cluster::wire::JobDecoder;
    use crate::telemetry::metrics::Metrics;

    /// A pod with labels of 4 KiB, beside which its name and the pod itself take little.
    fn large(number: usize) -> Value {
        json!({"metadata": {
            "name": number.to_string(), "namespace": "n", "uid": number.to_string(), "labels": {"l": "x".repeat(4_000)},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }})
    }

    /// A reader of a cluster in which each list shows that many such pods.
    fn reader(pods: usize) -> (Reader, TestApi) {
        let items: Vec<Value> = (0..pods).map(large).collect();
        let list = json!({"metadata": {"resourceVersion": "7"}, "items": items});
        let api = TestApi::new(move |_, _| Some((200, list.clone())));
        let reader = Reader::new(Arc::new(api.clone()), "f", JobDecoder::new(), Arc::new(Metrics::new()));
        (reader, api)
    }

    async fn list(reader: Reader, namespace: Option<&'static str>) -> PodList {
        let selection = Selection { namespace: namespace.map(Into::into), ..Selection::all(Resource::PODS) };
        reader.list_pods(&PodDecoder::new("f"), &selection).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn short_lists_have_turns_until_they_are_dropped() {
        let (reader, api) = reader(1);
        let mut kept = Vec::new();
        for _ in 0..4 {
            kept.push(list(reader.clone(), Some("n")).await);
        }
        let waiting = tokio::spawn(list(reader.clone(), Some("n")));
        list(reader, Some("other")).await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!((api.sent().len(), waiting.is_finished()), (5, false));
        kept.pop();
        assert_eq!(waiting.await.unwrap().pods.len(), 1);
    }

    /// Nothing is kept of the lists that wait.
    #[tokio::test(start_paused = true)]
    async fn one_long_list_of_a_namespace_and_two_in_all_are_kept_at_a_time() {
        let pods = SHORT_LIST / 4_000;
        let (reader, api) = reader(pods);
        let long = list(reader.clone(), Some("n")).await;
        assert_eq!((long.pods.len(), api.sent().len()), (pods, 2), "it has begun again");
        let same = tokio::spawn(list(reader.clone(), Some("n")));
        let second = timeout(Duration::from_secs(1), list(reader.clone(), Some("m"))).await.unwrap();
        let third = tokio::spawn(list(reader.clone(), Some("o")));
        sleep(Duration::from_secs(60)).await;
        assert_eq!((api.sent().len(), same.is_finished(), third.is_finished()), (6, false, false));
        assert_eq!(list(reader, None).await.pods.len(), pods, "the replica's own lists wait for no tenant");
        drop(second);
        assert_eq!(third.await.unwrap().pods.len(), pods);
        assert!(!same.is_finished());
        drop(long);
        assert_eq!(same.await.unwrap().pods.len(), pods);
    }
}
