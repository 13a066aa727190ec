//! The meaning of a Job: the rules of `batch/v1` as pure functions. No async, no clock, no I/O: time is a
//! parameter.
//!
//! # Where each rule is
//!
//! Read `spec` and `pod` first, then `state`, then [`reconcile`], which asks all other rules for their part
//! of the plan.
//!
//! | rule | file | Kubernetes field |
//! |---|---|---|
//! | how many pods run at once, and how many must succeed | [`manage`], [`spec`] | `spec.parallelism`, `spec.completions` |
//! | which index or ordinal a new pod gets | [`pod_set`] (`places`) | `spec.completionMode` |
//! | what a pod is called | [`pod_name`] | `metadata.name`, `spec.hostname` of the pod |
//! | what a pod is made of | [`manifest`], [`template`], [`overlay`], [`protobuf`] | `spec.template` |
//! | which pods are the Job's: identity, adoption and release | [`job_id`], [`adoption`], [`selector`] | `spec.selector`, `metadata.ownerReferences` |
//! | each ended pod is counted exactly once | [`counting`] | `status.uncountedTerminatedPods`, finalizer `batch.kubernetes.io/job-tracking` |
//! | which indexes have succeeded or failed | [`index_set`], [`pod_set`] (`ledger`) | `status.completedIndexes`, `status.failedIndexes` |
//! | how the Job ends | [`end`], [`verdict`] | `status.conditions`, `spec.backoffLimit`, `spec.activeDeadlineSeconds` |
//! | an index ends for itself | [`end`], [`pod_set`] (`places`) | `spec.backoffLimitPerIndex`, `spec.maxFailedIndexes` |
//! | which failures count | [`pod_failure_policy`], [`pod_set`] (`classify`) | `spec.podFailurePolicy` |
//! | which failures are evaluated together | [`debounce`] | |
//! | some successes are enough | [`success_policy`] | `spec.successPolicy` |
//! | when a failed pod is replaced | [`backoff`], [`pod_set`] (`places`) | `spec.podReplacementPolicy` |
//! | suspended Jobs have no pods | [`reconcile`] | `spec.suspend`, `status.startTime` |
//! | what the status says, and when it is written | [`status`], [`counting`], [`second`] | `status` |
//! | finished Jobs are deleted | [`ttl`] | `spec.ttlSecondsAfterFinished` |
//! | all pods are scheduled together | [`gang`], [`gang_state`] | `scheduling.k8s.io` Workload and PodGroup |
//! | ours: which counted pods are deleted | [`retention`], [`options`] | annotations `yardmaster.dev/*` |
//! | ours: pods that do not start, or run for too long, count as failed | [`pod_deadlines`] | annotations `yardmaster.dev/*-deadline` |
//! | ours: pods of lost nodes count as failed | [`lost_nodes`] | annotation `yardmaster.dev/lost-node-timeout` |
//! | ours: how each index has ended | [`index_results`], [`counting`] | annotation `yardmaster.dev/index-results` |
//! | ours: all pods of a Job are replaced together | [`restart`] | annotations `yardmaster.dev/restart-together`, ... |
//! | ours: a Job begins after others have ended | [`order`], [`predecessors`] | annotations `yardmaster.dev/after`, `after-any` |
//! | ours: a condition says why a Job waits | [`waiting_condition`] | annotation `yardmaster.dev/waiting-condition` |
//! | ours: what a pod learns of those before it | [`lineage`], [`pod_set`] (`lineages`) | annotations `yardmaster.dev/retry-*`, `oom-*` |
//! | ours: a finished Job needs no actor | [`passivation`] | |
//! | ours: how fast, and when to try again | [`slow_start`], [`retry`], [`pod_retries`], [`exponential`] | |
//!
//! [`plan`] is what the rules decide, [`state`] what they know, [`limits`] what bounds it. [`uid`], [`names`], [`index_set`],
//! [`second`], [`memory`], [`short_text`], [`duration_text`] and [`tidying`] are what they share.

pub mod adoption;
pub mod backoff;
pub mod counting;
pub mod debounce;
pub mod duration_text;
pub mod end;
pub mod exponential;
pub mod gang;
pub mod gang_state;
mod index_ends;
pub mod index_results;
pub mod index_set;
pub mod job_id;
pub(crate) mod json;
pub mod limits;
pub mod lineage;
pub mod lost_nodes;
pub mod manage;
pub mod manifest;
pub mod memory;
pub mod names;
pub mod options;
pub mod order;
pub mod overlay;
pub mod passivation;
pub mod plan;
pub mod pod;
pub mod pod_deadlines;
pub mod pod_failure_policy;
pub mod pod_name;
pub mod pod_retries;
pub mod pod_set;
pub mod predecessors;
pub mod protobuf;
pub mod reconcile;
pub mod restart;
pub mod retention;
pub mod retry;
mod saturating;
pub mod second;
pub mod selector;
pub mod short_text;
pub mod slow_start;
pub mod spec;
pub mod state;
pub mod status;
pub mod success_policy;
pub mod template;
pub mod tidying;
pub mod ttl;
pub mod uid;
pub mod verdict;
pub mod waiting_condition;

#[cfg(test)]
pub(crate) mod tests;
