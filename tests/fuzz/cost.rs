//! The cost of work for its thread: in CPU time and in memory, so that other processes do not matter.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{FutureExt as _, Stream, StreamExt as _};
use rustix::time::{ClockId, clock_gettime};

thread_local! {
    /// CPU time of this thread that does not count.
    static EXCUSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Work whose CPU time does not count.
pub(crate) struct Excused<T>(pub(crate) T);

impl<F: Future + Unpin> Future for Excused<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        excuse(|| self.0.poll_unpin(cx))
    }
}

impl<S: Stream + Unpin> Stream for Excused<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        excuse(|| self.0.poll_next_unpin(cx))
    }
}

fn excuse<T>(work: impl FnOnce() -> T) -> T {
    let before = cpu_time();
    let result = work();
    EXCUSED.set(EXCUSED.get() + (cpu_time() - before));
    result
}

/// The cost of some work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) cpu: Duration,
    /// CPU time that does not count.
    pub(crate) excused: Duration,
    /// Bytes of all allocations.
    pub(crate) allocated: u64,
    /// Most bytes at a time, beyond those before the work.
    pub(crate) peak: u64,
    /// Bytes that are still there, beyond those before the work.
    pub(crate) kept: i64,
}

/// A limit that grows with the bytes of the input.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) cpu: Duration,
    pub(crate) cpu_per_byte: Duration,
    pub(crate) bytes: u64,
    pub(crate) allocated_per_byte: u64,
    pub(crate) peak_per_byte: u64,
    pub(crate) kept_per_byte: u64,
}

impl Limit {
    /// # Errors
    /// If the cost is above the limit.
    pub(crate) fn check(&self, what: &str, input: usize, cost: &Cost) -> Result<(), String> {
        let input = input as u64;
        let memory = |used: u64, per_byte: u64| used <= self.bytes + per_byte * input;
        let cpu = self.cpu + self.cpu_per_byte * u32::try_from(input).unwrap_or(u32::MAX);
        let holds = cost.cpu <= cpu
            && memory(cost.allocated, self.allocated_per_byte)
            && memory(cost.peak, self.peak_per_byte)
            && memory(u64::try_from(cost.kept).unwrap_or(0), self.kept_per_byte);
        if holds {
            return Ok(());
        }
        let Cost { cpu, excused, allocated, peak, kept } = cost;
        Err(format!(
            "{what}: {cpu:?} (and {excused:?} that do not count), {allocated} bytes allocated, {peak} at a time, \
             {kept} kept, for {input} bytes"
        ))
    }
}

/// Measures some work of this thread.
pub(crate) fn measure<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let mut result = None;
    let (before, excused_before) = (cpu_time(), EXCUSED.get());
    let used = allocation_counter::measure(|| result = Some(catch_unwind(AssertUnwindSafe(work))));
    let excused = EXCUSED.get() - excused_before;
    let cpu = (cpu_time() - before).saturating_sub(excused);
    match result {
        Some(Ok(done)) => {
            let cost = Cost {
                cpu,
                excused,
                allocated: used.bytes_total,
                peak: used.bytes_max,
                kept: used.bytes_current,
            };
            (done, cost)
        }
        Some(Err(panic)) => resume_unwind(panic),
        None => unreachable!("the work was done"),
    }
}

/// The CPU time that this thread has used.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}
