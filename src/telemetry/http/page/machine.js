// The machine of a cluster of one machine: what is in use, and what waits for room.
const MACHINE_PERIOD = 2000; // ms
let machineAsked = 0, hasMachine = true;

const gibibytes = (bytes) => `${(bytes / 2 ** 30).toFixed(1)} GiB`;
const meter = (id, share, text) => {
  const element = at(id);
  setStyle(element.querySelector("i"), "width", `${(100 * Math.min(1, share)).toFixed(0)}%`);
  setAttribute(element, "aria-valuenow", Math.round(100 * share));
  setAttribute(element, "aria-valuetext", text);
  setText(at(`${id}-text`), text);
};
const askMachine = async () => {
  if (!hasMachine || Date.now() - machineAsked < MACHINE_PERIOD) return;
  machineAsked = Date.now();
  const answer = await request("/debug/machine", {});
  // The page of a controller in a cluster of several machines has none.
  if (answer.status !== 200) { hasMachine = answer.status >= 500; return; }
  const machine = await answer.json();
  at("machine-section").hidden = false;
  if (machine.cpuShare !== null) {
    meter("machine-cpu", machine.cpuShare, `${(machine.cpuShare * machine.cores).toFixed(1)} of ${plural(machine.cores, "core")}`);
  }
  if (machine.memoryUsedBytes !== null) {
    meter("machine-memory", machine.memoryUsedBytes / machine.memoryBytes, `${gibibytes(machine.memoryUsedBytes)} of ${gibibytes(machine.memoryBytes)}`);
  }
  const waiting = machine.waiting || { count: 0, pods: [] };
  setText(at("machine-waiting"), waiting.count === 0 ? "no pod waits for room" : `${plural(waiting.count, "pod")} wait${waiting.count === 1 ? "s" : ""} for room`);
  sync(at("machine-pods"), waiting.pods.slice(0, 5), () => make("li", "", make("b"), make("span", "soft")), (item, pod) => {
    setText(item.firstChild, `${pod.namespace}/${pod.pod}`);
    setText(item.lastChild, ` ${pod.message || pod.reason}`);
  });
};
