//! Where a curve bends: from which size on the next pod, Job or replica costs more than before.

use indicatif::HumanCount;
use serde::{Deserialize, Serialize};

use super::Curve;
use super::sweep::{Figures, Sweep};

/// A curve bends where one more costs this many times as much as it did where it was cheapest.
const BEND: f64 = 1.5;

/// A kind of cost.
pub(super) struct Quantity {
    pub(super) name: &'static str,
    pub(super) of: fn(&Figures) -> f64,
    /// A smaller difference between two sizes says nothing.
    noise: f64,
}

/// All that may bend.
pub(super) const QUANTITIES: [Quantity; 6] = [
    Quantity { name: "requests", of: |figures| figures.requests, noise: 50.0 },
    Quantity { name: "CPU", of: |figures| figures.cpu_s, noise: 0.5 },
    Quantity { name: "memory of the largest replica", of: |figures| figures.memory_bytes, noise: 8e6 },
    Quantity { name: "watched bytes", of: |figures| figures.watch_bytes, noise: 1e6 },
    Quantity { name: "CPU of the API server", of: |figures| figures.api_server_cpu_s, noise: 0.5 },
    Quantity { name: "time", of: |figures| figures.wall_s, noise: 2.0 },
];

/// A bend.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub(crate) struct Bend {
    /// The quantity that bends.
    pub(crate) quantity: String,
    /// The last size before the bend.
    pub(crate) after: u32,
    /// The first size behind it.
    pub(crate) by: u32,
    /// The cost of one more between these sizes, divided by that where it is cheapest.
    pub(crate) times: f64,
}

impl Curve {
    /// The first bend of each quantity that has one, in the order of their sizes.
    pub(super) fn bends(&self) -> Vec<Bend> {
        // With replicas, the load lasts as long as it is told to.
        let measured =
            QUANTITIES.iter().filter(|quantity| self.sweep != Sweep::Replicas || quantity.name != "time");
        let mut bends: Vec<Bend> = measured.filter_map(|quantity| self.bend(quantity)).collect();
        bends.sort_by(|a, b| a.by.cmp(&b.by).then(b.times.total_cmp(&a.times)));
        bends
    }

    fn bend(&self, quantity: &Quantity) -> Option<Bend> {
        let mut cheapest = f64::INFINITY;
        for pair in self.points.windows(2) {
            let [smaller, larger] = pair else { continue };
            let more = (quantity.of)(larger) - (quantity.of)(smaller);
            if more < quantity.noise {
                continue;
            }
            let each = more / f64::from(larger.size - smaller.size);
            if each > cheapest * BEND {
                let times = crate::report::round(each / cheapest);
                return Some(Bend {
                    quantity: quantity.name.into(),
                    after: smaller.size,
                    by: larger.size,
                    times,
                });
            }
            cheapest = cheapest.min(each);
        }
        None
    }

    /// A sentence that names the first bend.
    pub(super) fn first_bend(&self) -> String {
        let (what, _) = self.sweep.nouns();
        let largest = self.points.last().map_or(0, |figures| figures.size);
        match self.bends().first() {
            None => format!("Nothing bends up to {} {what}.", HumanCount(largest.into())),
            Some(Bend { quantity, after, by, times }) => format!(
                "The first thing that bends: {quantity}, between {} and {} {what}, where each one more costs \
                 {times:.1} times as much as where it is cheapest.",
                HumanCount((*after).into()),
                HumanCount((*by).into()),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(cpu_s: impl Fn(f64) -> f64, memory_bytes: impl Fn(f64) -> f64) -> Curve {
        let point = |size: u32| {
            let of = f64::from(size);
            let (cpu_s, memory_bytes) = (cpu_s(of), memory_bytes(of));
            Figures { size, cpu_s, memory_bytes, requests: 3.0 * of, ..Figures::default() }
        };
        Curve { sweep: Sweep::Pods, points: [10, 100, 1000, 10_000, 100_000].map(point).into() }
    }

    #[test]
    fn straight_lines_do_not_bend_wherever_they_begin() {
        let straight = curve(|size| 2.0 + size / 1000.0, |_| 30e6);
        assert_eq!(straight.bends(), []);
        assert_eq!(straight.first_bend(), "Nothing bends up to 100,000 pods.");
    }

    #[test]
    fn the_first_bend_is_named_with_its_place() {
        let cpu = |size: f64| size / 1000.0 + if size > 10_000.0 { size / 500.0 } else { 0.0 };
        let bent = curve(cpu, |size| 30e6 + size * 1e4);
        let bends = bent.bends();
        assert_eq!(bends.len(), 1, "{bends:?}");
        let first = bent.first_bend();
        assert!(first.contains("CPU, between 10,000 and 100,000 pods"), "{first}");
        assert!((bends.first().map_or(0.0, |bend| bend.times) - 3.222).abs() < 0.01, "{bends:?}");
    }

    #[test]
    fn noise_does_not_bend() {
        let noisy = curve(|size| if size > 50_000.0 { 0.4 } else { 0.01 }, |_| 30e6);
        assert_eq!(noisy.bends(), []);
    }
}
