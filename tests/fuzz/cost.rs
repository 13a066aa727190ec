//! What work costs the thread that does it: in CPU time and in memory, so that no other process matters.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The cost of some work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) cpu: Duration,
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
        if holds { Ok(()) } else { Err(format!("{what}: {cost:?} for {input} bytes")) }
    }
}

/// Measures some work of this thread.
pub(crate) fn measure<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let mut result = None;
    let before = cpu_time();
    let used = allocation_counter::measure(|| result = Some(catch_unwind(AssertUnwindSafe(work))));
    let cpu = cpu_time() - before;
    match result {
        Some(Ok(done)) => {
            let cost =
                Cost { cpu, allocated: used.bytes_total, peak: used.bytes_max, kept: used.bytes_current };
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
