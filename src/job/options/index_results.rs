//! `index-results`: the Job says how each index has ended. The rule is in [`index_results`](crate::job::index_results).

use super::form::{FLAG, Form};
use super::{JobOption, Needs, Options};

/// `yardmaster.dev/index-results`.
pub(super) struct KeepResults;

impl JobOption for KeepResults {
    const NAME: &'static str = "index-results";
    type Value = bool;
    const FORM: Form<bool> = FLAG;
    const EFFECT: &'static str = "an annotation of an Indexed Job keeps exit code, times and number of tries of each index, \
                                  also when the pods are gone. `yardmaster status JOB --indexes` shows them. See \
                                  [Results of indexes](#results-of-indexes)";
    const WITHOUT: &'static str = "they go with the pods";

    fn set(options: &mut Options, keeps: bool) {
        options.index_results = keeps;
    }

    fn needs(options: &Options) -> Needs {
        Needs { exit_codes: options.index_results, ..Needs::default() }
    }
}
