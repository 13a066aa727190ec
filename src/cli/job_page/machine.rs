//! The machine of a cluster of one machine: what is in use, and which pods wait for room.

use std::sync::{Mutex, PoisonError};

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ApiResource, ListParams};
use procfs::{CpuTime, Current as _, CurrentSI as _, KernelStats, Meminfo};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::PATIENCE;
use crate::cli::lists::objects;
use crate::cli::pod_view::PodView;
use crate::job::short_text::{short, short_word};

/// Most waiting pods that are read.
const MOST: u32 = 500;
/// Most that are shown.
const SHOWN: usize = 20;

/// Remembers the processor time of the last reading: its use is that of the time in between.
#[derive(Default)]
pub(super) struct Machine(Mutex<Option<CpuTime>>);

impl Machine {
    /// The use of the machine now, and the pods that wait. A fact that cannot be read is `null`.
    pub(super) async fn read(&self, client: &Client) -> Value {
        let memory = Meminfo::current().ok();
        json!({
            "cores": std::thread::available_parallelism().map_or(1, usize::from),
            "cpuShare": self.cpu_share(),
            "memoryBytes": memory.as_ref().map(|memory| memory.mem_total),
            "memoryUsedBytes": memory.and_then(|memory| Some(memory.mem_total.saturating_sub(memory.mem_available?))),
            "waiting": timeout(PATIENCE, waiting(client)).await.ok().flatten(),
        })
    }

    /// The share of all processor time since the last reading that was used, from 0 to 1.
    fn cpu_share(&self) -> Option<f64> {
        let now = KernelStats::current().ok()?.total;
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.replace(now.clone());
        let (idle, all) = times(&now);
        let (idle_before, all_before) = before.as_ref().map(times).unwrap_or_default();
        let passed = all.saturating_sub(all_before);
        (passed > 0).then(|| 1.0 - idle.saturating_sub(idle_before) as f64 / passed as f64)
    }
}

/// Ticks without work, and all.
fn times(cpu: &CpuTime) -> (u64, u64) {
    let idle = cpu.idle + cpu.iowait.unwrap_or_default();
    let busy =
        cpu.user + cpu.nice + cpu.system + cpu.irq.unwrap_or_default() + cpu.softirq.unwrap_or_default();
    (idle, idle + busy + cpu.steal.unwrap_or_default())
}

/// Pods for which there is no room, and how many there are of those that were read. Their authors choose how large they are:
/// one is held at a time.
async fn waiting(client: &Client) -> Option<Value> {
    let api: Api<PodView> = Api::all_with(client.clone(), &ApiResource::erase::<Pod>(&()));
    let pending = ListParams::default().fields("status.phase=Pending").limit(MOST);
    let mut pods = std::pin::pin!(objects(api, &pending));
    let (mut count, mut shown) = (0_u32, Vec::new());
    while let Some(pod) = pods.try_next().await.ok()? {
        let Some((reason, message)) = pod.status.as_ref().and_then(|status| status.unschedulable()) else {
            continue;
        };
        count += 1;
        if shown.len() < SHOWN {
            shown.push(json!({
                "namespace": pod.metadata.namespace,
                "pod": pod.metadata.name,
                "reason": short_word(reason.raw()),
                "message": short(message.raw()),
            }));
        }
    }
    Some(json!({"count": count, "pods": shown}))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use bytes::Bytes;
    use futures::{StreamExt as _, stream};

    use super::*;
    use crate::cli::lists::tests::answering;
    use crate::job::short_text::SHORT;

    #[tokio::test]
    async fn of_waiting_pods_few_are_shown_and_all_are_counted() {
        let pod = |number: u32| {
            let reason = if number.is_multiple_of(2) { "True" } else { "False" };
            let condition = json!({"type": "PodScheduled", "status": reason, "reason": "Unschedulable",
                "message": "x".repeat(100_000)});
            let pod = json!({"metadata": {"name": format!("p{number}"), "namespace": "ml"},
                "spec": {}, "status": {"phase": "Pending", "conditions": [condition]}});
            Bytes::from(format!("{}{pod}", if number == 0 { "" } else { "," }))
        };
        let begin = stream::iter([Bytes::from(r#"{"metadata":{"resourceVersion":"7"},"items":["#)]);
        let pods = begin.chain(stream::iter(0..100).map(pod)).chain(stream::iter([Bytes::from("]}")]));
        let waiting = waiting(&answering(pods)).await.unwrap();
        let shown = waiting["pods"].as_array().unwrap();
        assert_eq!((&waiting["count"], shown.len(), &shown[0]["pod"]), (&json!(50), SHOWN, &json!("p1")));
        assert!(shown[0]["message"].as_str().unwrap().len() <= SHORT);
    }
}
