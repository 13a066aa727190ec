//! Lists that are read page by page.

use std::fmt::Debug;

use futures::stream::{Stream, try_unfold};
use kube::api::{Api, ListParams};
use serde::de::DeserializeOwned;

/// Objects in one page of a list.
const PAGE: u32 = 500;

/// The pages of a list, which together are the list at one time.
pub(super) fn pages<K>(api: Api<K>, params: ListParams) -> impl Stream<Item = kube::Result<Vec<K>>>
where
    K: Clone + DeserializeOwned + Debug,
{
    try_unfold(Some(params.limit(PAGE)), move |params| {
        let api = api.clone();
        async move {
            let Some(mut params) = params else { return Ok(None) };
            let page = api.list(&params).await?;
            let next = page.metadata.continue_.filter(|token| !token.is_empty());
            let next = next.map(|token| {
                params.continue_token = Some(token);
                params
            });
            Ok(Some((page.items, next)))
        }
    })
}
