//! The choice of pods by class, so that the same happens on both sides.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::class::Class;
use super::plan::{Pick, Step, What};
use super::side::applies;

/// The acts of a step that apply to these numbers of pods by class, with their picks by class. No pod is
/// chosen twice.
pub(super) fn pinned(step: &Step, mut left: BTreeMap<Class, u32>) -> Step {
    let apply = step.0.iter().filter_map(|act| {
        let mut act = act.clone();
        if let What::Pods { pick, count, change } = &mut act.what {
            let class = choose(pick, &left, |class| applies(change, class))?;
            let there = left.get_mut(&class)?;
            *count = (*count).min(*there);
            *there -= *count;
            *pick = Pick::Class(class);
        }
        Some(act)
    });
    Step(apply.collect())
}

/// The class of a pick, if there is one to which the change applies and of which pods are left.
fn choose(pick: &Pick, left: &BTreeMap<Class, u32>, applies: impl Fn(&Class) -> bool) -> Option<Class> {
    let fits = |class: &Class| applies(class) && left.get(class).is_some_and(|count| *count > 0);
    let nth = |number: u32, live: bool| {
        let fit: Vec<&Class> =
            left.keys().filter(|class| fits(class) && (!live || class.is_live())).collect();
        let at = (number as usize).checked_rem(fit.len())?;
        Some((*fit.get(at)?).clone())
    };
    match pick {
        Pick::Any(number) => nth(*number, false),
        Pick::Live(number) => nth(*number, true),
        Pick::Class(class) => Some(class).filter(|class| fits(class)).cloned(),
    }
}

/// Takes up to `count` pods that fit.
pub(super) fn take<'a>(
    left: &mut Vec<&'a Arc<Value>>,
    count: u32,
    fits: impl Fn(&Value) -> bool,
) -> Vec<&'a Value> {
    let mut taken: Vec<&Value> = Vec::new();
    left.retain(|pod| {
        let takes = taken.len() < count as usize && fits(pod);
        if takes {
            taken.push(pod);
        }
        !takes
    });
    taken
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::differ::plan::{Act, Change, End};

    fn class(phase: &str, index: &str) -> Class {
        Class { phase: phase.into(), index: Some(index.into()), ..Class::default() }
    }

    #[test]
    fn picks_are_of_classes_that_there_are() {
        let left: BTreeMap<Class, u32> = [
            (class("Failed", "0"), 1),
            (class("Running", "1"), 1),
            (class("Pending", "2"), 1),
            (class("Running", "3"), 0),
        ]
        .into();
        let phase = |pick: Pick| choose(&pick, &left, |_| true).map(|class| class.phase);
        assert_eq!(phase(Pick::Any(0)).as_deref(), Some("Failed"));
        assert_eq!(phase(Pick::Any(3)).as_deref(), Some("Failed"));
        assert_eq!(phase(Pick::Live(2)).as_deref(), Some("Running"));
        assert_eq!(phase(Pick::Class(class("Pending", "2"))).as_deref(), Some("Pending"));
        assert_eq!(phase(Pick::Class(class("Pending", "0"))), None);
        assert_eq!(phase(Pick::Class(class("Running", "3"))), None, "no pod is left");
        assert_eq!(choose(&Pick::Live(7), &left, |_| false), None, "no class fits");
    }

    #[test]
    fn the_acts_of_a_step_share_the_pods() {
        let running = class("Running", "0");
        let act = |count| Act {
            after_ms: 0,
            what: What::Pods { pick: Pick::Any(0), count, change: Change::Succeed(End::Past) },
        };
        let step = pinned(&Step(vec![act(2), act(100), act(1)]), [(running, 3)].into());
        let counts: Vec<u32> = step
            .0
            .iter()
            .map(|act| match act.what {
                What::Pods { count, .. } => count,
                _ => 0,
            })
            .collect();
        assert_eq!(counts, [2, 1]);
    }

    #[test]
    fn no_pod_is_taken_twice() {
        let pods: Vec<Arc<Value>> = (0..3).map(|number| Arc::new(json!(number))).collect();
        let mut left: Vec<&Arc<Value>> = pods.iter().collect();
        assert_eq!(take(&mut left, 2, |_| true), [&json!(0), &json!(1)]);
        assert_eq!(take(&mut left, 2, |_| true), [&json!(2)]);
        assert!(take(&mut left, 1, |_| true).is_empty());
    }
}
