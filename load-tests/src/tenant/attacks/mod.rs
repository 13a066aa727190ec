//! The attacks: writes that a tenant is allowed, at their extremes.
//!
//! An attack [begins](Attack::begin) with its objects, [goes on](Attack::go_on) until it is stopped, and is
//! [judged](Attack::judge) by its own promise beside the rules for all. Its Jobs and pods are deleted by the round.

mod admission;
mod churn;
mod circles;
mod crowded;
mod gang;
mod held;
mod lineages;
mod marks;
mod options;
mod order;
mod owners;
mod selectors;
mod sizes;
mod statuses;
mod text;
mod vanishing;

use anyhow::Result;
use clap::ValueEnum;
use http::Request;
use serde_json::Value;

use self::admission::Aid;
use super::user::{Scale, Tenant};
use super::yard::Yard;
use crate::ground::Ground;
use crate::webhooks::Kind;

/// An attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Attack {
    /// Pods with the marks and the UID of the victim's Job, in the tenant's namespace.
    ForeignUid,
    /// Pods whose owners have names that change the path of a request.
    OwnerNames,
    /// Pods whose owner's name is answered with a list of many big Jobs.
    LargeAnswers,
    /// Suspended Jobs with thousands of expressions, and pods with thousands of labels.
    Selectors,
    /// Pods, one at a time, with owner names that fill a memory of names.
    Interner,
    /// Idle Jobs with templates of 1 MB.
    Templates,
    /// Jobs whose selector is too long for a URL.
    LongSelector,
    /// Ended pods at places that their Job cannot have had.
    Places,
    /// Every annotation of Jobs at its extremes, with pods that fail at once.
    Options,
    /// Statuses of Jobs that the tenant writes: long lists, and numbers at the edges of their types.
    Statuses,
    /// Statuses of a few Jobs with as many indexes as fit, each time others, as fast as possible.
    Readings,
    /// Statuses that grow, are written by the controller, and shrink again, Job by Job.
    Shrinking,
    /// Deleted Jobs and pods, with finalizers that are never removed.
    Finalizers,
    /// Jobs and pods that are created and deleted as fast as possible.
    CreationFlood,
    /// Jobs that are suspended and resumed as fast as possible.
    SuspendLoop,
    /// Jobs that own one another.
    OwnerCircles,
    /// Workloads for Jobs of gangs that the tenant has made, and that contradict the Jobs.
    Gang,
    /// Jobs whose many pods have large environments and annotations.
    Environment,
    /// Jobs in a namespace whose admission webhook hangs.
    Webhooks,
    /// Jobs in a namespace whose admission webhook refuses pods with messages of 16 MiB, or 1 MiB on the embedded API server.
    Refusals,
    /// Control characters in messages, reasons and annotations.
    Messages,
    /// Pods of other controllers with labels of shards.
    ShardLabels,
    /// Pods with the label of a shard that wait for a Job of another controller.
    WaitingPods,
    /// Idle Jobs whose success policies list a million indexes.
    Policies,
    /// Large pods of another controller with the labels of pods of Jobs, which every hand-over reads.
    Census,
    /// Pods of Jobs that vanish with their finalizer, so that their Jobs doubt what they know, while large pods hold up the watch.
    Vanishing,
    /// A Job that is resized again and again, with many deleted pods at one index.
    CrowdedIndex,
    /// Pods without controller, and suspended Jobs that look up as many of their labels as they may.
    Lookups,
    /// Jobs that wait for each other in all ways, and one of them changes again and again.
    Order,
    /// Pods whose annotations teach one index of their Job after the other as much as is read.
    Lineages,
}

impl Attack {
    pub(super) fn name(self) -> &'static str {
        let all = Self::value_variants().iter().zip(NAMES);
        all.into_iter().find(|(attack, _)| **attack == self).map_or("", |(_, name)| name)
    }

    /// A sentence about it.
    pub(super) fn about(self) -> String {
        let value = self.to_possible_value();
        value.and_then(|value| Some(value.get_help()?.to_string())).unwrap_or_default()
    }

    /// Whether the tenant needs the right to write statuses.
    pub(super) fn writes_statuses(self) -> bool {
        matches!(self, Self::Statuses | Self::Readings | Self::Shrinking | Self::Messages)
    }

    /// Requests a second that are due. If Jobs ask for no back-off, the operator's least back-off holds: all
    /// their pods are replaced once a second. Each pod takes four requests.
    pub(super) fn due_requests(self, scale: Scale) -> u32 {
        let jobs = if self == Self::Options { scale.of(2, 7) } else { 0 };
        jobs as u32 * options::PODS * 4
    }

    /// Flags of the replicas under this attack.
    pub(super) fn flags(self) -> &'static [&'static str] {
        if self == Self::Gang { &gang::FLAGS } else { &[] }
    }

    /// The reason why it cannot be played here.
    pub(super) async fn skipped(self, ground: &Ground) -> Result<Option<String>> {
        let api = match self {
            Self::Gang => gang::API,
            // The embedded API server plays webhooks itself.
            Self::Webhooks | Self::Refusals if !ground.is_embedded() => admission::API,
            _ => return Ok(None),
        };
        let client = ground.client("load-tests").await?;
        let found = client.request::<Value>(Request::get(api).body(Vec::new())?).await;
        Ok(found.is_err().then(|| format!("the API server does not serve {api}")))
    }

    /// Prepares it with the rights of an administrator.
    pub(super) async fn prepare(self, ground: &mut Ground, yard: &Yard) -> Result<Option<Aid>> {
        match self {
            Self::Webhooks => Aid::prepare(Kind::Failing, ground, yard).await.map(Some),
            Self::Refusals => Aid::prepare(Kind::Refusing, ground, yard).await.map(Some),
            _ => Ok(None),
        }
    }

    /// Creates its objects.
    pub(super) async fn begin(self, tenant: &Tenant) -> Result<()> {
        match self {
            Self::ForeignUid => owners::foreign_uid(tenant).await,
            Self::OwnerNames => owners::names(tenant).await,
            Self::LargeAnswers => owners::large_answers(tenant).await,
            Self::Selectors => selectors::many(tenant).await,
            Self::Interner => owners::interner(tenant).await,
            Self::Templates => sizes::templates(tenant).await,
            Self::LongSelector => selectors::long(tenant).await,
            Self::Places => marks::places(tenant).await,
            Self::Options => options::begin(tenant).await,
            Self::Statuses => statuses::begin(tenant).await,
            Self::Readings => statuses::begin_idle(tenant, statuses::ALTERNATING).await,
            Self::Shrinking => statuses::begin_idle(tenant, statuses::shrinking(tenant)).await,
            Self::Finalizers => held::begin(tenant).await,
            Self::CreationFlood => {}
            Self::SuspendLoop => churn::begin_suspend_loop(tenant).await,
            Self::OwnerCircles => circles::begin(tenant).await,
            Self::Gang => gang::begin(tenant).await,
            Self::Environment => sizes::environment(tenant).await,
            Self::Webhooks | Self::Refusals => admission::begin(tenant).await,
            Self::Messages => text::begin(tenant).await,
            Self::ShardLabels => marks::shard_labels(tenant).await,
            Self::WaitingPods => marks::waiting_pods(tenant).await,
            Self::Policies => sizes::policies(tenant).await,
            Self::Census => sizes::census(tenant).await,
            Self::Vanishing => vanishing::begin(tenant).await,
            Self::CrowdedIndex => crowded::begin(tenant).await,
            Self::Lookups => selectors::lookups(tenant).await,
            Self::Order => order::begin(tenant).await,
            Self::Lineages => lineages::begin(tenant).await,
        }
        Ok(())
    }

    /// Goes on with it, until dropped.
    pub(super) async fn go_on(self, tenant: &Tenant) {
        match self {
            Self::CreationFlood => churn::flood(tenant).await,
            Self::SuspendLoop => churn::suspend_loop(tenant).await,
            Self::Statuses => statuses::go_on(tenant).await,
            Self::Readings => statuses::alternate(tenant).await,
            Self::Shrinking => statuses::shrink(tenant).await,
            Self::ShardLabels => marks::label_again(tenant).await,
            Self::ForeignUid => owners::delete_foreign_pods(tenant).await,
            Self::Vanishing => vanishing::go_on(tenant).await,
            Self::CrowdedIndex => crowded::resize(tenant).await,
            Self::Lookups => selectors::look_up_again(tenant).await,
            Self::Order => order::change(tenant).await,
            Self::Lineages => lineages::teach(tenant).await,
            _ => {}
        }
    }

    /// Checks the rule of this attack. Returns all deviations.
    pub(super) async fn judge(self, tenant: &Tenant, yard: &Yard, ground: &Ground) -> Result<Vec<String>> {
        match self {
            Self::ForeignUid | Self::OwnerNames => owners::still_tracked(tenant).await,
            Self::LongSelector => selectors::judge_long(tenant).await,
            Self::ShardLabels => marks::judge_shard_labels(tenant).await,
            Self::Messages => text::judge(tenant, yard, ground).await,
            _ => Ok(Vec::new()),
        }
    }

    /// Removes everything except Jobs and pods.
    pub(super) async fn end(self, tenant: &Tenant, aid: Option<Aid>, yard: &Yard) -> Result<()> {
        if let Some(aid) = aid {
            aid.end(&yard.admin).await?;
        }
        match self {
            Self::Finalizers | Self::CrowdedIndex | Self::Lineages => held::end(tenant).await,
            Self::Gang => gang::end(tenant).await,
            _ => Ok(()),
        }
    }
}

/// The names of all attacks, in their order.
const NAMES: [&str; 30] = [
    "foreign-uid",
    "owner-names",
    "large-answers",
    "selectors",
    "interner",
    "templates",
    "long-selector",
    "places",
    "options",
    "statuses",
    "readings",
    "shrinking",
    "finalizers",
    "creation-flood",
    "suspend-loop",
    "owner-circles",
    "gang",
    "environment",
    "webhooks",
    "refusals",
    "messages",
    "shard-labels",
    "waiting-pods",
    "policies",
    "census",
    "vanishing",
    "crowded-index",
    "lookups",
    "order",
    "lineages",
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn attacks_have_the_names_of_the_command_line() {
        for attack in Attack::value_variants() {
            assert_eq!(attack.name(), attack.to_possible_value().unwrap().get_name());
            assert!(!attack.about().is_empty(), "{attack:?}");
        }
    }
}
