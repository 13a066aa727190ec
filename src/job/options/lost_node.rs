//! `lost-node-timeout`: a pod whose node does not answer counts as failed. The rule is in
//! [`lost_nodes`](crate::job::lost_nodes).

use std::time::Duration;

use super::form::{DURATION, Form};
use super::{JobOption, Needs, Options};

/// The shortest timeout. A node that restarts its kubelet is silent for as long.
const LEAST: Duration = Duration::from_secs(1);

/// `yardmaster.dev/lost-node-timeout`.
pub(super) struct LostNodeTimeout;

impl JobOption for LostNodeTimeout {
    const NAME: &'static str = "lost-node-timeout";
    type Value = Duration;
    const FORM: Form<Duration> = DURATION;
    const EFFECT: &'static str = "a pod whose node has been lost for so long counts as failed, and is replaced. The pod is deleted by \
                                  force. See [Lost nodes](#lost-nodes)";
    const WITHOUT: &'static str = "it counts once it is being deleted, and with `podReplacementPolicy: Failed` once its object has ended";

    fn set(options: &mut Options, timeout: Duration) {
        options.lost_node_timeout = Some(timeout.max(LEAST));
    }

    fn needs(options: &Options) -> Needs {
        let asks = options.lost_node_timeout.is_some();
        Needs { times: asks, lost_nodes: asks, ..Needs::default() }
    }
}
