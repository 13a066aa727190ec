// The pods of the opened Job: columns that grow line by line, and what follows from them.
const POD_PHASES = ["Pending", "Running", "Succeeded", "Failed", "Unknown"];
const COLUMNS = ["name", "index", "attempt", "phase", "created", "started", "ended", "exit", "restarts", "node", "cause"];
const STATES = ["todo", "succeeded", "running", "retried", "failed"]; // of an index, from the best known to the worst
const STATE_NAMES = { todo: "to do", succeeded: "succeeded", running: "running", retried: "tried again", failed: "failed" };
const MOST_INDEXES = 5_000_000; // of a map

const emptyPods = () => ({
  count: 0, nodes: [], causes: [], why: null, more: false, cutAfter: null, ...Object.fromEntries(COLUMNS.map((name) => [name, []])),
});

/** Reads all pods anew. Returns null if the reading was given up. */
const readPods = async (job, signal) => {
  const pods = emptyPods();
  const answer = await accepted(await request("/debug/job/pods", job, { signal }));
  const pause = breather();
  for await (const line of linesOf(answer)) {
    if (line.problem !== undefined) throw new Refused(502, line.problem);
    if (line.why) {
      pods.why = line.why;
      pods.more = line.more;
      pods.cutAfter = line.cutAfterSeconds ?? null;
    } else {
      for (const name of COLUMNS) for (const value of line[name]) pods[name].push(value);
      pods.nodes.push(...line.nodes);
      pods.causes.push(...line.causes);
      pods.count = pods.name.length;
    }
    await pause();
  }
  return pods;
};

/** The indexes of a list such as `1,3-5`, as pairs of the first and the last. */
const ranges = (text) => (text || "").split(",").filter(Boolean).map((part) => {
  const [first, last] = part.split("-").map(Number);
  return [first, last === undefined ? first : last];
});
const fill = (states, text, state) => {
  for (const [first, last] of ranges(text)) states.fill(STATES.indexOf(state), first, last + 1);
};

/** The state of each index of an Indexed Job and its newest pod; null for other Jobs. */
const indexesOf = (whole, pods) => {
  const count = whole.job.completions;
  if (whole.completionMode !== "Indexed" || count === null || count > MOST_INDEXES) return null;
  const [states, newest] = [new Uint8Array(count), new Int32Array(count).fill(-1)];
  const [running, retried] = [STATES.indexOf("running"), STATES.indexOf("retried")];
  for (let pod = 0; pod < pods.count; pod += 1) {
    const index = pods.index[pod];
    if (index === null || index >= count) continue;
    const before = newest[index];
    if (before < 0 || pods.created[before] <= pods.created[pod]) newest[index] = pod;
    const phase = POD_PHASES[pods.phase[pod]];
    if (phase === "Failed") states[index] = retried;
    else if (phase === "Running" && states[index] !== retried) states[index] = running;
  }
  fill(states, whole.job.completedIndexes, "succeeded");
  fill(states, whole.job.failedIndexes, "failed");
  const counts = STATES.map(() => 0);
  for (const state of states) counts[state] += 1;
  return { count, states, newest, counts };
};

/** The number of pods and of failed pods of each node, those with the most failures first. */
const nodesOf = (pods) => {
  const nodes = pods.nodes.map((name) => ({ name, pods: 0, failed: 0 }));
  for (let pod = 0; pod < pods.count; pod += 1) {
    const node = pods.node[pod];
    if (node === null) continue;
    nodes[node].pods += 1;
    if (POD_PHASES[pods.phase[pod]] === "Failed") nodes[node].failed += 1;
  }
  return nodes.sort((one, other) => other.failed - one.failed || other.pods - one.pods);
};

/** What is said of a pod in one line. */
const podText = (pods, pod) => {
  const tries = pods.attempt[pod] === null ? "" : `, try ${pods.attempt[pod]}`;
  const node = pods.node[pod] === null ? "" : ` on ${pods.nodes[pods.node[pod]]}`;
  const cause = pods.cause[pod] === null ? "" : `: ${pods.causes[pods.cause[pod]]}`;
  return `${pods.name[pod]} ${POD_PHASES[pods.phase[pod]]}${tries}${node}${cause}`;
};
