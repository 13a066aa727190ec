//! Waits of a Job that no controller ends.

use std::fmt;

use crate::cli::untrusted::Untrusted;

/// Why no pod of a Job runs until the Job is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// It is suspended.
    Suspended,
    /// It is left to this controller, which has not begun with it.
    ManagedBy(Untrusted),
    /// No pod may run at a time.
    NoParallelism,
    /// It is after another Job, which will not end as wanted.
    After(Untrusted),
    /// Its pods have these scheduling gates.
    Gated(Vec<Untrusted>),
}

impl Hold {
    /// The word for it in a table.
    pub(super) fn result(&self) -> &'static str {
        match self {
            Self::Suspended => "Suspended",
            Self::ManagedBy(_) | Self::NoParallelism | Self::After(_) | Self::Gated(_) => "Waiting",
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Suspended => f.write_str("suspended: set spec.suspend to false to run it"),
            Self::ManagedBy(name) => write!(
                f,
                "spec.managedBy leaves it to {name}, which has not begun: start that controller, or leave the field out"
            ),
            Self::NoParallelism => {
                f.write_str("spec.parallelism is 0, so no pod runs: set it to 1 or more to run it")
            }
            Self::After(obstacle) => write!(f, "it is after another Job, and did not begin: {obstacle}"),
            Self::Gated(gates) => {
                let gates: Vec<_> = gates.iter().map(Untrusted::to_string).collect();
                write!(
                    f,
                    "its pods wait until somebody removes spec.schedulingGates ({}): leave \
                     spec.template.spec.schedulingGates out to run it",
                    gates.join(", ")
                )
            }
        }
    }
}
