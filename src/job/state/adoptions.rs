//! The adoptions of a Job that are under way, as far as its decisions depend on them.

use super::JobState;

impl JobState {
    /// Takes in that the adoption of a pod has begun.
    pub fn adoption_begun(&mut self) {
        self.adoptions_in_flight += 1;
        self.adoptions_unanswered += 1;
    }

    /// Takes in that the first answer to an adoption has come, whatever it says.
    pub fn adoption_answered(&mut self) {
        self.adoptions_unanswered = self.adoptions_unanswered.saturating_sub(1);
    }

    /// Takes in that the adoption of a pod has ended, whether it succeeded or not, or that the Job goes on without the pod.
    pub fn adoption_ended(&mut self) {
        self.adoptions_in_flight = self.adoptions_in_flight.saturating_sub(1);
    }
}
