//! Properties that hold for every Job under any sequence of events.

use proptest::prelude::*;

use super::acts::{Act, act, deletion, jobs, jobs_that_restart, limits, user_act};
use super::fixture::cases;
use super::owner::Owner;
use super::world::World;
use crate::job::limits::Limits;
use crate::job::pod::{Phase, Pod};
use crate::job::spec::Job;
use crate::job::uid::Uid;

/// Most plans in a row until one is idle, while nothing but their requests happens.
const PLANS_UNTIL_IDLE: usize = 60;

/// Carries out plans until there is nothing to do at this time.
fn run_until_idle(world: &mut World, owner: &mut Owner) {
    for _ in 0..PLANS_UNTIL_IDLE {
        owner.deliver_all(world);
        let plan = owner.plan(world);
        if plan.is_idle() && !owner.is_busy(world) {
            return;
        }
    }
    panic!("never idle: {:?}\n{:#?}", owner.plan(world), world.job.status);
}

/// Nodes do one thing: they end a pod that is being deleted, or else run the first remaining pod to success.
/// False if there is nothing to do.
fn nodes_work(world: &mut World) -> bool {
    let uid = |world: &World, eligible: fn(&&Pod) -> bool| -> Option<Uid> {
        world.pods.values().find(eligible).map(|pod| pod.uid.clone())
    };
    if let Some(uid) = uid(world, |pod| pod.deleting && !(pod.tracked && pod.phase.is_final())) {
        world.finish_deletion(&uid);
    } else if let Some(uid) = uid(world, |pod| !pod.deleting && !pod.phase.is_final()) {
        world.change_pod(&uid, |pod| pod.scheduled = true);
        world.end_pod(&uid, Phase::Succeeded);
    } else {
        return false;
    }
    true
}

/// Runs the Job to its end without faults: requests arrive, pods succeed.
fn run_to_the_end(world: &mut World, owner: &mut Owner) {
    world.change_spec(|spec| {
        spec.suspend = false;
        spec.parallelism = spec.completion.indexes().unwrap_or(2).max(1);
    });
    for _ in 0..1000 {
        run_until_idle(world, owner);
        let over = world.job.deleting || world.job.status.finished().is_some();
        if over && world.pods.values().all(|pod| !pod.tracked) {
            return;
        }
        if !nodes_work(world) {
            let wake = owner.plan(world).wake_at;
            let at = wake.unwrap_or_else(|| panic!("stuck: {:#?}\n{:#?}", owner.state, world.pods));
            world.now = at.max(world.now);
        }
    }
    panic!("no end: {:#?}", owner.state);
}

/// Checks that an ended Job deletes failed pods down to its limit. Failed pods of a deleted Job go with it.
fn check_failed_pods_limit(world: &mut World, owner: &mut Owner) {
    if world.job.deleting {
        return;
    }
    for _ in 0..100 {
        run_until_idle(world, owner);
        match owner.plan(world).wake_at {
            Some(at) => world.now = at.max(world.now),
            None => break,
        }
    }
    let limit = world.job.options.failed_pods_limit.map_or(usize::MAX, |limit| limit as usize);
    let left = world.failed_pods_left();
    assert!(left <= limit, "{left} failed pods left of {limit}: {:#?}", owner.state);
}

fn run(job: Job, limits: Limits, acts: Vec<Act>) {
    let mut world = World::new(job);
    let mut owners = [Owner::take_over(&world, limits, false)];
    for act in acts {
        world.act(act, &mut owners);
    }
    run_to_the_end(&mut world, &mut owners[0]);
    check_failed_pods_limit(&mut world, &mut owners[0]);
}

proptest! {
    #![proptest_config(cases(1))]

    #[test]
    fn counts_are_exact_and_the_job_ends(
        job in jobs(),
        limits in limits(),
        acts in prop::collection::vec(act(), 0..250),
    ) {
        run(job, limits, acts);
    }

    #[test]
    fn counts_are_exact_and_the_job_ends_whatever_users_do(
        job in jobs(),
        limits in limits(),
        acts in prop::collection::vec(prop_oneof![8 => act(), 1 => user_act()], 0..250),
    ) {
        run(job, limits, acts);
    }

    /// The world checks that no pod of an attempt is created beside one of an attempt before, and that no success is let go
    /// that a restart has not made vain.
    #[test]
    fn restarts_are_atomic_and_counts_exact(
        job in jobs_that_restart(),
        limits in limits(),
        acts in prop::collection::vec(prop_oneof![12 => act(), 1 => deletion()], 0..250),
    ) {
        run(job, limits, acts);
    }

    #[test]
    fn counts_are_exact_with_two_owners(
        job in jobs(),
        limits in limits(),
        acts in prop::collection::vec(act(), 0..250),
    ) {
        let mut world = World::new(job);
        world.owners = 2;
        let mut owners = [0, 1].map(|_| Owner::take_over(&world, limits, true));
        for act in acts {
            world.act(act, &mut owners);
        }
        owners[1].deliver_all(&mut world);
        run_to_the_end(&mut world, &mut owners[0]);
        }
}
