//! `oom-memory-factor`, `oom-memory-max`, `oom-memory-container` and `oom-exit-codes`: a retry gets more memory.

use super::form::{CONTAINER, EXIT_CODES, FACTOR, Form, MEMORY};
use super::{JobOption, Needs, Options, PodFacts};
use crate::job::memory::MemoryAmount;
use crate::job::overlay::{Overlay, Quantity, ResourceList};
use crate::job::pod::ContainerExit;
use crate::mutants::{Mutant, is};

/// The most that is asked for, unless the Job says how much.
const MOST: &str = "1Ti";

/// `yardmaster.dev/oom-memory-factor`.
pub(super) struct MemoryFactor;

impl JobOption for MemoryFactor {
    const NAME: &'static str = "oom-memory-factor";
    /// In hundredths.
    type Value = u32;
    const FORM: Form<u32> = FACTOR;
    const EFFECT: &'static str = "after `OOMKilled`, the replacement of a pod asks for so many times the memory (without indexes: \
                                  all later pods do). See [Retry with more memory](#retry-with-more-memory)";
    const WITHOUT: &'static str = "it asks for as much as before";

    fn set(options: &mut Options, factor: u32) {
        options.memory_factor = Some(factor);
    }

    fn needs(options: &Options) -> Needs {
        Needs { memory: options.memory_factor.is_some(), ..Needs::default() }
    }

    fn overlay(options: &Options, facts: &PodFacts<'_>, overlay: &mut Overlay) {
        let (Some(factor), Some(lineage)) = (options.memory_factor, facts.lineage) else { return };
        let Some(most) = options.memory_max.or_else(|| MemoryAmount::parse(MOST)) else { return };
        for raise in &lineage.raises {
            let asked =
                facts.template.map(|template| template.memory_of(&raise.container)).unwrap_or_default();
            // No container may ask for more than its pod.
            let most = asked.pod_limit.map_or(most, |limit| most.min(limit));
            let raised = |memory: MemoryAmount| memory.raised(factor, raise.times, most);
            let limit = asked.limit.map(raised);
            let request =
                asked.request.map(raised).map(|request| limit.map_or(request, |limit| request.min(limit)));
            // The requests of all containers are bounded together then, so this one stays.
            let request = request.filter(|_| asked.pod_request.is_none() && !is(Mutant::OnlyLimitsRaised));
            let lists = [(ResourceList::Limits, limit), (ResourceList::Requests, request)];
            overlay.quantities.extend(lists.into_iter().filter_map(|(list, memory)| {
                let (container, amount) = (raise.container.clone(), memory?.to_string().into());
                Some(Quantity { container, list, resource: "memory", amount })
            }));
        }
    }
}

/// `yardmaster.dev/oom-memory-max`.
pub(super) struct MaxMemory;

impl JobOption for MaxMemory {
    const NAME: &'static str = "oom-memory-max";
    type Value = MemoryAmount;
    const FORM: Form<MemoryAmount> = MEMORY;
    const EFFECT: &'static str = "the most memory that `oom-memory-factor` has a container ask for";
    const WITHOUT: &'static str = "1Ti";

    fn set(options: &mut Options, most: MemoryAmount) {
        options.memory_max = Some(most);
    }
}

/// `yardmaster.dev/oom-memory-container`.
pub(super) struct MemoryContainer;

impl JobOption for MemoryContainer {
    const NAME: &'static str = "oom-memory-container";
    type Value = Box<str>;
    const FORM: Form<Box<str>> = CONTAINER;
    const EFFECT: &'static str = "the only container that `oom-memory-factor` applies to";
    const WITHOUT: &'static str = "each that was killed";

    fn set(options: &mut Options, name: Box<str>) {
        options.memory_container = Some(name);
    }
}

/// `yardmaster.dev/oom-exit-codes`.
pub(super) struct MemoryExitCodes;

impl JobOption for MemoryExitCodes {
    const NAME: &'static str = "oom-exit-codes";
    type Value = Box<[i32]>;
    const FORM: Form<Box<[i32]>> = EXIT_CODES;
    const EFFECT: &'static str = "exit codes that mean the same as `OOMKilled` to `oom-memory-factor`";
    const WITHOUT: &'static str = "none";

    fn set(options: &mut Options, codes: Box<[i32]>) {
        options.memory_exit_codes = codes;
    }
}

/// Which ends of containers raise their memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryRule<'a>(&'a Options);

impl Options {
    /// Which ends of containers raise their memory, if any do.
    pub fn memory_rule(&self) -> Option<MemoryRule<'_>> {
        self.memory_factor.map(|_| MemoryRule(self))
    }
}

impl MemoryRule<'_> {
    /// Whether this one does.
    pub fn raises(self, exit: &ContainerExit) -> bool {
        let Options { memory_container, memory_exit_codes, .. } = self.0;
        (exit.out_of_memory || memory_exit_codes.contains(&exit.exit_code))
            && memory_container.as_ref().is_none_or(|name| *name == exit.name)
    }
}
