//! `retry-avoid-node`, `retry-avoid-nodes-max` and `retry-avoid-for`: a retry runs elsewhere.

use std::time::Duration;

use super::form::{AVOIDANCE, DURATION, Form, NODES};
use super::{JobOption, Needs, Options, PodFacts};
use crate::job::overlay::{HostAvoidance, Overlay};

/// How strictly nodes are avoided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Avoidance {
    /// Other nodes are preferred.
    Preferred,
    /// The pod waits for another node.
    Required,
}

/// Nodes that are avoided at once, unless the Job says how many.
const NODES_AT_ONCE: u32 = 5;
/// How long a node is avoided, unless the Job says how long.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

/// `yardmaster.dev/retry-avoid-node`.
pub(super) struct AvoidNode;

impl JobOption for AvoidNode {
    const NAME: &'static str = "retry-avoid-node";
    type Value = Avoidance;
    const FORM: Form<Avoidance> = AVOIDANCE;
    const EFFECT: &'static str = "the replacement of a failed pod avoids the nodes on which its index has failed before (without \
                                  indexes: the Job). See [Retry elsewhere](#retry-elsewhere)";
    const WITHOUT: &'static str = "it may run on any node";

    fn set(options: &mut Options, avoidance: Avoidance) {
        options.avoid_node = Some(avoidance);
    }

    fn needs(options: &Options) -> Needs {
        Needs { failed_nodes: options.avoid_node.is_some(), ..Needs::default() }
    }

    fn overlay(options: &Options, facts: &PodFacts<'_>, overlay: &mut Overlay) {
        let nodes = facts.lineage.map(|lineage| &lineage.nodes[..]).unwrap_or_default();
        if let Some(avoidance) = options.avoid_node.filter(|_| !nodes.is_empty()) {
            let hosts = nodes.iter().map(|failed| failed.node.clone()).collect();
            overlay.avoidance = Some(HostAvoidance { required: avoidance == Avoidance::Required, hosts });
        }
    }
}

/// `yardmaster.dev/retry-avoid-nodes-max`.
pub(super) struct NodesMax;

impl JobOption for NodesMax {
    const NAME: &'static str = "retry-avoid-nodes-max";
    type Value = u32;
    const FORM: Form<u32> = NODES;
    const EFFECT: &'static str =
        "how many nodes `retry-avoid-node` avoids at once: those of the latest failures";
    const WITHOUT: &'static str = "5";

    fn set(options: &mut Options, most: u32) {
        options.avoid_nodes_max = Some(most);
    }
}

/// `yardmaster.dev/retry-avoid-for`.
pub(super) struct AvoidFor;

impl JobOption for AvoidFor {
    const NAME: &'static str = "retry-avoid-for";
    type Value = Duration;
    const FORM: Form<Duration> = DURATION;
    const EFFECT: &'static str = "how long after a failure `retry-avoid-node` avoids its node";
    const WITHOUT: &'static str = "1h";

    fn set(options: &mut Options, time: Duration) {
        options.avoid_for = Some(time);
    }
}

impl Options {
    /// How nodes are avoided, how many at most, and for how long.
    pub fn avoidance(&self) -> Option<(Avoidance, usize, Duration)> {
        let most = self.avoid_nodes_max.unwrap_or(NODES_AT_ONCE) as usize;
        self.avoid_node.map(|avoidance| (avoidance, most, self.avoid_for.unwrap_or(FORGOTTEN_AFTER)))
    }
}
