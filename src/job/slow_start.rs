//! How many creations of one Job may be under way: one at first, one more with each that goes well, one again after a
//! refusal. A Job whose pods are refused (quota, admission) so costs a handful of requests, not thousands.

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
    /// A creation went well.
    pub fn accepted(&mut self) {
        self.window = self.window.saturating_add(1);
    }

    /// A creation was refused.
    pub fn refused(&mut self) {
        self.window = 1;
    }

    /// How many more may be sent while `under_way` are not answered, with at most `limit` at once.
    pub fn room(&self, under_way: usize, limit: usize) -> usize {
        self.window.min(limit).saturating_sub(under_way)
    }
}
