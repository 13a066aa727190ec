//! Bodies of answers that are read in one piece, and the turns of the long ones.
//!
//! A tenant chooses the length of answers about its objects, and of its webhooks' refusals. So
//! only one answer of a namespace may be long at a time, and no more than [`LONG_ANSWERS`] in
//! all. Others wait with the beginning that they have read: about [`SHORT_ANSWER`].

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{BoxStream, TryStreamExt};
use http::Response;

use super::fair_semaphore::{FairSemaphore, Permit};
use super::wire::LONGEST_REFUSAL;

/// Most bytes of an answer that is read in one piece: 16 MiB. API servers store objects of up to 1.5 MiB by default, and in
/// JSON one may have six times as many bytes.
pub const LONGEST_ANSWER: usize = 16 << 20;
/// Answers of more bytes need a turn. Answers about usual objects have fewer.
const SHORT_ANSWER: usize = 64 << 10;
/// Long answers that may be in memory at once, one of a namespace.
const LONG_ANSWERS: usize = 2;

/// A body that arrives in pieces.
pub type ByteStream = BoxStream<'static, Result<Bytes, TransportError>>;

/// No answer, or an incomplete one. Whether the request was carried out is unknown.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct TransportError(pub String);

/// The turns of long answers. Clones are the same turns.
#[derive(Clone)]
pub(super) struct LongAnswers(FairSemaphore);

/// A long answer and its turn.
struct LongAnswer {
    body: Vec<u8>,
    _turn: Option<Permit>,
}

impl AsRef<[u8]> for LongAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Default for LongAnswers {
    fn default() -> Self {
        Self(FairSemaphore::new(LONG_ANSWERS, 1))
    }
}

impl LongAnswers {
    /// Reads an answer about an object of this namespace, or of none. A long one has its turn until its bytes are dropped.
    ///
    /// # Errors
    /// When the answer breaks off, or is longer than [`LONGEST_ANSWER`].
    pub(super) async fn read(
        &self,
        answer: Response<ByteStream>,
        namespace: Option<&Arc<str>>,
    ) -> Result<Response<Bytes>, TransportError> {
        read(answer, async { Some(self.0.acquire(namespace, None).await) }).await
    }
}

/// Reads an answer whose length only the operator chooses.
///
/// # Errors
/// When the answer breaks off, or is longer than [`LONGEST_ANSWER`].
pub(super) async fn read_trusted(answer: Response<ByteStream>) -> Result<Response<Bytes>, TransportError> {
    read(answer, async { None }).await
}

async fn read(
    answer: Response<ByteStream>,
    turn: impl Future<Output = Option<Permit>>,
) -> Result<Response<Bytes>, TransportError> {
    let (head, mut pieces) = answer.into_parts();
    let first = pieces.try_next().await?.unwrap_or_default();
    let Some(second) = pieces.try_next().await? else { return Ok(Response::from_parts(head, first)) };
    let mut body = Vec::from(first);
    body.extend_from_slice(&second);
    let shortest = if head.status.is_success() { SHORT_ANSWER } else { LONGEST_REFUSAL };
    let is_whole = read_beyond(shortest, &mut body, &mut pieces).await?;
    if is_whole || !head.status.is_success() {
        return Ok(Response::from_parts(head, body.into()));
    }
    let turn = turn.await;
    if !read_beyond(LONGEST_ANSWER, &mut body, &mut pieces).await? {
        return Err(TransportError(format!("longer than {LONGEST_ANSWER} bytes")));
    }
    Ok(Response::from_parts(head, Bytes::from_owner(LongAnswer { body, _turn: turn })))
}

/// Reads pieces until there are more than this many bytes. Returns whether the body ended before.
pub(super) async fn read_beyond(
    most: usize,
    body: &mut Vec<u8>,
    pieces: &mut ByteStream,
) -> Result<bool, TransportError> {
    while body.len() <= most {
        match pieces.try_next().await? {
            Some(piece) => body.extend_from_slice(&piece),
            None => return Ok(true),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::stream::{self, FuturesUnordered, StreamExt};

    use super::*;

    const PIECE: usize = 16 << 10;

    /// An answer of this many pieces, which counts those that have been read.
    fn answer(code: u16, pieces: usize, read: &Arc<AtomicUsize>) -> Response<ByteStream> {
        let read = read.clone();
        let pieces = stream::iter(0..pieces).map(move |_| {
            read.fetch_add(PIECE, Ordering::Relaxed);
            Ok(Bytes::from(vec![b'x'; PIECE]))
        });
        Response::builder().status(code).body(pieces.boxed()).unwrap()
    }

    #[tokio::test]
    async fn no_more_of_a_refusal_is_read_than_says_something() {
        let (turns, read) = (LongAnswers::default(), Arc::default());
        for code in [300, 403, 429, 500] {
            let body = turns.read(answer(code, 1_000, &read), None).await.unwrap().into_body();
            assert!(
                (LONGEST_REFUSAL + 1..LONGEST_REFUSAL + 2 * PIECE).contains(&body.len()),
                "{}",
                body.len()
            );
        }
        assert!(read.load(Ordering::Relaxed) < 5 * (LONGEST_REFUSAL + PIECE));
    }

    #[tokio::test]
    async fn one_long_answer_of_a_namespace_is_in_memory_and_two_in_all() {
        let (turns, read) = (LongAnswers::default(), Arc::default());
        let namespaces = ["a", "a", "a", "b", "c", "d"].map(Arc::from);
        let mut waiting: Vec<_> = namespaces
            .iter()
            .map(|namespace| {
                let (turns, namespace, answer) =
                    (turns.clone(), Arc::clone(namespace), answer(200, 100, &read));
                tokio::spawn(async move { turns.read(answer, Some(&namespace)).await.unwrap() })
            })
            .collect();
        let mut held = Vec::new();
        for _ in 0..100 {
            tokio::task::yield_now().await;
            while let Some(place) = waiting.iter().position(tokio::task::JoinHandle::is_finished) {
                held.push(waiting.remove(place).await.unwrap());
            }
        }
        assert_eq!(held.len(), 2, "the first of a, and b");
        assert!(held.iter().all(|answer| answer.body().len() == 100 * PIECE));
        let others = 4 * (SHORT_ANSWER + PIECE);
        assert!(read.load(Ordering::Relaxed) <= 2 * 100 * PIECE + others, "{read:?}");
        drop(held);
        // Each has its turn once one before it is dropped.
        let mut waiting: FuturesUnordered<_> = waiting.into_iter().collect();
        while let Some(answer) = waiting.next().await {
            assert_eq!(answer.unwrap().body().len(), 100 * PIECE);
        }
    }

    #[tokio::test]
    async fn short_answers_wait_for_nobody_and_no_answer_is_endless() {
        let (turns, read) = (LongAnswers::default(), Arc::default());
        let _held = [turns.0.acquire(None, None).await, turns.0.acquire(Some(&"n".into()), None).await];
        for pieces in [0, 1, 2, 4] {
            let body = turns.read(answer(200, pieces, &read), None).await.unwrap().into_body();
            assert_eq!(body.len(), pieces * PIECE);
        }
        drop(_held);
        assert!(turns.read(answer(200, LONGEST_ANSWER / PIECE + 1, &read), None).await.is_err());
    }
}
