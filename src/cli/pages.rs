//! Lists that are read page by page.

use std::fmt::Debug;

use futures::stream::{Stream, try_unfold};
use kube::api::{Api, ListParams, ObjectList};
use kube::core::PartialObjectMeta;
use serde::de::DeserializeOwned;

/// Objects in one page of a list.
const PAGE: u32 = 500;

/// The pages of a list, which together are the list at one time.
pub(super) fn pages<K>(api: Api<K>, params: ListParams) -> impl Stream<Item = kube::Result<Vec<K>>>
where
    K: Clone + DeserializeOwned + Debug,
{
    paged(params, async move |params: &ListParams| api.list(params).await)
}

/// The same, of the metadata of the objects.
pub(super) fn metadata_pages<K>(
    api: Api<K>,
    params: ListParams,
) -> impl Stream<Item = kube::Result<Vec<PartialObjectMeta<K>>>>
where
    K: Clone + DeserializeOwned + Debug,
{
    paged(params, async move |params: &ListParams| api.list_metadata(params).await)
}

fn paged<T>(
    params: ListParams,
    list: impl AsyncFn(&ListParams) -> kube::Result<ObjectList<T>>,
) -> impl Stream<Item = kube::Result<Vec<T>>>
where
    T: Clone,
{
    try_unfold((list, Some(params.limit(PAGE))), async |(list, params)| {
        let Some(mut params) = params else { return Ok(None) };
        let page = list(&params).await?;
        let next = page.metadata.continue_.filter(|token| !token.is_empty());
        let next = next.map(|token| {
            params.continue_token = Some(token);
            params
        });
        Ok(Some((page.items, (list, next))))
    })
}
