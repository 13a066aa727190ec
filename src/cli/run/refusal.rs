//! The advice for a file that `run` cannot take.

use super::cronjob::CRON_JOB;

/// Why an object of another kind is not taken, and what takes it.
pub(super) fn kind(kind: &str) -> String {
    let refused = format!("kind {kind} is not supported: yardmaster runs batch/v1 Job");
    if kind == CRON_JOB {
        return format!(
            "{refused}; --cronjob NAME runs one now, --ignore-others leaves it out, and a cluster runs it on its schedule"
        );
    }
    format!("{refused}; --ignore-others leaves it out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_names_a_way_out() {
        assert!(kind("Deployment").contains("--ignore-others"));
        assert!(kind("CronJob").contains("--cronjob"));
    }
}
