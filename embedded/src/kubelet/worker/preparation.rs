//! The preparations of a pod and of its containers, which wait for objects that are missing.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::super::engine::{Engine, Network};
use super::super::pod::Slot;
use super::super::pod_names::{self, Named};
use super::super::setup::{PodSetup, SetupError};
use super::super::status::{Failure, Termination};
use super::super::stop::StopOrder;
use super::super::volumes::{self, Volumes};
use super::super::{KubeletMode, images, refusals, service_account};
use super::Worker;

/// Interval between checks for a ConfigMap, Secret or key that a container waits for.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

impl Worker {
    /// Makes the pod's volumes. Returns them with a time at which each token in them was new; `None` if the pod,
    /// or a volume of it, is impossible here.
    pub(super) async fn volumes(&self) -> Option<(Volumes, Timestamp)> {
        let refusals = match &self.context.mode {
            KubeletMode::Process => refusals::of_processes(&self.pod.spec, &self.context.mounting),
            KubeletMode::Containers(_) => refusals::of_containers(&self.pod.spec),
            KubeletMode::Simulated => return Some((Volumes::new(), Timestamp::now())),
        };
        if let Some(refusal) = refusals.into_iter().next() {
            self.refuse(None, refusal.reason, refusal.message).await;
            return None;
        }
        let prepare = || async {
            let begun = Timestamp::now();
            Ok((volumes::prepare(self).await?, begun))
        };
        self.await_setup(None, &self.stop, prepare).await
    }

    /// Makes the other things that the pod's containers share; `None` if they are impossible here.
    pub(super) async fn setup(&self, volumes: Volumes) -> Option<PodSetup> {
        let engine = match &self.context.mode {
            KubeletMode::Process => None,
            KubeletMode::Containers(engine) => Some(engine),
            KubeletMode::Simulated => return Some(PodSetup::default()),
        };
        let network = match engine {
            Some(engine) => self.await_setup(None, &self.stop, || self.network(engine)).await?,
            None => None,
        };
        let (spec, api) = (&self.pod.spec, self.context.api.as_ref());
        // The engine may take long to answer, so a stop ends this wait, too.
        let address = || async { Ok(service_account::address(api, spec, engine, network.as_ref()).await) };
        let api = self.await_setup(None, &self.stop, address).await?;
        let Some(engine) = engine else {
            if let Some(why) = self.context.mounting.why_not(spec) {
                self.context.events.note(&self.key, "MountsByVariable", &why).await;
            }
            return Some(PodSetup { volumes, api, ..PodSetup::default() });
        };
        let make = || engine.sandbox(&self.key, spec, network.as_ref());
        let sandbox = self.await_setup(None, &self.stop, make).await?;
        Some(PodSetup { volumes, api, network, sandbox, ..PodSetup::default() })
    }

    /// The place of the pod in a network, if its namespace has Services: pods find each other by name there.
    async fn network(&self, engine: &Engine) -> Result<Option<Network>, SetupError> {
        let spec = &self.pod.spec;
        if spec.host_network {
            return Ok(None);
        }
        let services = self.client.services().await?;
        if services.is_empty() {
            return Ok(None);
        }
        let names = pod_names::of(
            Named {
                namespace: &self.key.namespace,
                labels: self.pod.metadata.labels.as_ref().unwrap_or(&BTreeMap::new()),
                hostname: &spec.host_name(&self.key.name),
                subdomain: spec.subdomain.as_deref().unwrap_or_default(),
            },
            &services,
        );
        engine.network(&self.key.namespace, names).await.map(Some)
    }

    /// Repeats the preparations until they succeed; `None` if they never will, or if a stop is requested.
    pub(super) async fn await_setup<T, F>(
        &self,
        slot: Option<Slot>,
        stop: &StopOrder,
        mut prepare: impl FnMut() -> F,
    ) -> Option<T>
    where
        F: Future<Output = Result<T, SetupError>>,
    {
        let stop = stop.signal();
        let mut reported = None;
        loop {
            let attempt = tokio::select! {
                biased;
                () = stop.requested() => return None,
                attempt = prepare() => attempt,
            };
            match attempt {
                Ok(ready) => return Some(ready),
                Err(SetupError::Refused { reason, message }) => {
                    self.refuse(slot, reason, message).await;
                    return None;
                }
                Err(SetupError::Missing { reason, message }) => {
                    if reported.as_ref() != Some(&message) {
                        self.report_wait(slot, reason, &message).await;
                        reported = Some(message);
                    }
                }
            }
            tokio::select! {
                () = stop.requested() => return None,
                () = tokio::time::sleep(RETRY_INTERVAL) => {}
            }
        }
    }

    /// Says what the pod, or one container, waits for.
    async fn report_wait(&self, slot: Option<Slot>, reason: Option<&'static str>, message: &str) {
        let (shown, event) = match slot {
            Some(_) => (reason.unwrap_or(refusals::CONFIG_ERROR), "Failed"),
            None => ("ContainerCreating", reason.unwrap_or(refusals::FAILED_MOUNT)),
        };
        let first = slot.unwrap_or(Slot::Main(0));
        self.record.send_modify(|record| record.waiting(first, shown, message.to_owned()));
        let is_told = match slot {
            Some(slot) => images::report_wait(self, slot, shown, message).await,
            None => false,
        };
        if !is_told {
            self.context.events.warn(&self.key, event, message).await;
        }
    }

    /// Fails the pod because it, or one container, requires something that this kubelet does not support.
    async fn refuse(&self, slot: Option<Slot>, reason: &str, message: String) {
        match slot {
            Some(slot) => {
                let termination = Termination::not_started(reason, message.clone(), Timestamp::now());
                self.record.send_modify(|record| record.terminated(slot, termination));
                self.fail(reason, message.clone());
            }
            None => {
                let failure = Failure { reason: reason.into(), message: message.clone() };
                self.record.send_modify(|record| record.refuse(failure));
            }
        }
        let event = if reason == refusals::FAILED_MOUNT { reason } else { "Failed" };
        self.context.events.warn(&self.key, event, &message).await;
    }
}
