//! Whether the CPUs that a measurement may use are free for it.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use procfs::{CpuTime, CurrentSI as _, KernelStats};
use rustix::thread::{CpuSet, sched_getaffinity};

/// How long the CPUs are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// Share of this time that others may use.
const MOST_BUSY: f64 = 0.1;

/// An error if others use the CPUs that this process may run on. `taskset` sets aside some of a machine.
pub(super) fn ensure_quiet() -> Result<()> {
    let mine = sched_getaffinity(None).context("the CPUs that this process may use")?;
    let before = spent(&mine)?;
    sleep(LOOK);
    let after = spent(&mine)?;
    let busy = share(before, after);
    ensure!(
        busy <= MOST_BUSY,
        "other work runs on the CPUs of this measurement: {:.0} % of their time is used",
        100.0 * busy
    );
    Ok(())
}

/// Ticks that the CPUs of a set have worked, and all their ticks.
fn spent(cpus: &CpuSet) -> Result<(u64, u64)> {
    let times = KernelStats::current().context("/proc/stat")?.cpu_time;
    let of_set = times.iter().enumerate().filter(|(cpu, _)| cpus.is_set(*cpu));
    Ok(of_set.map(|(_, time)| ticks(time)).fold((0, 0), |(busy, all), (b, a)| (busy + b, all + a)))
}

fn ticks(time: &CpuTime) -> (u64, u64) {
    let or_none = Option::unwrap_or_default;
    let busy = time.user
        + time.nice
        + time.system
        + or_none(time.irq)
        + or_none(time.softirq)
        // Taken by other virtual machines: no less other work than that of this one.
        + or_none(time.steal);
    (busy, busy + time.idle + or_none(time.iowait))
}

fn share(before: (u64, u64), after: (u64, u64)) -> f64 {
    let (busy, all) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    busy as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_share_is_that_of_the_time_between() {
        assert_eq!(share((10, 100), (40, 200)), 0.3);
        assert_eq!(share((10, 100), (10, 100)), 0.0);
    }

    #[test]
    fn only_cpus_of_the_set_count() {
        let mut first = CpuSet::new();
        first.set(0);
        let (_, of_first) = spent(&first).unwrap();
        let (busy, of_none) = spent(&CpuSet::new()).unwrap();
        assert!(of_first > 0);
        assert_eq!((busy, of_none), (0, 0));
    }
}
