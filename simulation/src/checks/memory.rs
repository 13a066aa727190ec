//! Jobs whose retries get more memory: what an index has been killed for is remembered, and requests follow limits.

use serde_json::Value;

use crate::ledger::{JobFacts, PodFacts};

/// The binary megabytes that the container of a pod asks for, by limit or request.
pub(crate) fn asked(pod: &Value, list: &str) -> Option<u64> {
    let text = pod["spec"]["containers"][0]["resources"][list]["memory"].as_str()?;
    let (number, scale) = match text.strip_suffix("Gi") {
        Some(number) => (number, 1 << 10),
        None => (text.strip_suffix("Mi")?, 1),
    };
    Some(number.parse::<u64>().ok()? * scale)
}

fn was_killed(pod: &PodFacts) -> bool {
    let end = &pod.object["status"]["containerStatuses"][0]["state"]["terminated"];
    pod.end.is_some_and(|end| end.clean) && end["reason"] == "OOMKilled"
}

/// The error in the memory of a new pod, if any.
pub(super) fn check(job: &JobFacts, new: &PodFacts, others: &[&PodFacts]) -> Option<String> {
    let factor = &job.object["metadata"]["annotations"]["yardmaster.dev/oom-memory-factor"];
    factor.as_str().filter(|factor| *factor == "2")?;
    let (limit, request) = (asked(&new.object, "limits")?, asked(&new.object, "requests")?);
    if limit != 2 * request {
        return Some(format!("with a limit of {limit}Mi and a request of {request}Mi"));
    }
    let at_index =
        || others.iter().filter(|other| other.index == new.index && !other.meddled && !other.garbled);
    // The lesson of a pod goes with the last pod that knows it.
    let is_known = |killed: &PodFacts| at_index().any(|pod| pod.exists() && pod.created >= killed.created);
    let killed = at_index().filter(|other| was_killed(other) && is_known(other));
    let most = killed.filter_map(|other| asked(&other.object, "limits")).max()?;
    (limit < 2 * most).then(|| format!("with {limit}Mi, and one with {most}Mi was killed at its index"))
}
