//! Slow start: the number of creations of one Job that may be under way. It starts at one, grows by one with
//! each success, and falls to one after a refusal. So a Job whose pods are refused (quota, admission) costs a
//! handful of requests, not thousands.

/// The window of creations of one Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowStart {
    window: usize,
}

impl Default for SlowStart {
    fn default() -> Self {
        Self { window: 1 }
    }
}

impl SlowStart {
    /// Takes in a success.
    pub fn accepted(&mut self) {
        self.window = self.window.saturating_add(1);
    }

    /// Takes in a refusal.
    pub fn refused(&mut self) {
        self.window = 1;
    }

    /// How many more creations may be sent while `under_way` are unanswered, with at most `limit` at once.
    pub fn room(&self, under_way: usize, limit: usize) -> usize {
        self.window.min(limit).saturating_sub(under_way)
    }
}
