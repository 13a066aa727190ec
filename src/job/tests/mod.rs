//! Tests of the rules: tables, and a model of the cluster that carries out plans under random acts and
//! faults.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod acts;
mod after_the_end;
mod deadlines;
mod debounce;
mod doubts;
mod ends;
pub(crate) mod fixture;
mod index_results;
mod known_pods;
mod lessons;
mod lost_nodes;
mod order;
mod owner;
mod passivation;
mod places;
mod pods_wanted;
mod properties;
pub(crate) mod protobuf;
mod restarts;
mod retention;
mod small_rules;
mod starts;
mod status_rules;
mod timing;
mod values;
mod verdicts;
mod waiting_condition;
mod withdrawal;
mod world;
