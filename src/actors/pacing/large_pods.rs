//! The turns of pods whose templates are not kept.

use crate::cluster::fair_semaphore::FairSemaphore;
use crate::job::template::PodTemplate;

/// A template is large from this length on, in bytes. Others are not kept since their namespace has very many.
pub const LARGE: usize = 64 << 10;
/// Pods of large templates that are made at the same time. If all these turns are taken, each namespace may still make one: the
/// webhooks of others may keep their turns for half a minute.
const AT_ONCE: usize = 16;
/// Most of them in one namespace.
const SHARE: usize = 4;
/// Pods of other templates that are made at a time in a namespace.
const MIDDLE_SHARE: usize = 8;

/// The turns of pods whose templates are not kept, large and shorter ones. Clones share them.
#[derive(Clone)]
pub struct LargePods {
    large: FairSemaphore,
    middle: FairSemaphore,
}

impl Default for LargePods {
    fn default() -> Self {
        Self {
            large: FairSemaphore::new(AT_ONCE, SHARE).with_one_for_each(),
            middle: FairSemaphore::of_each_namespace(MIDDLE_SHARE),
        }
    }
}

impl LargePods {
    /// The turns of the pods of this template.
    pub fn of(&self, template: &PodTemplate) -> &FairSemaphore {
        if template.length() < LARGE { &self.middle } else { &self.large }
    }
}
