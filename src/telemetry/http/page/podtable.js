// The table of pods. Only rows in view are in the document, so that 100,000 pods cost no more than 100.
const ROW_HEIGHT = 27; // as in the style sheet
const VIEW_HEIGHT = 420; // of the list at most, as there
const podTable = { pods: null, rows: [], phase: "", now: 0 };

const chooseRows = () => {
  const { pods, phase } = podTable;
  const rows = [];
  const wanted = POD_PHASES.indexOf(phase);
  // Failed pods first, then those that wait, run and have succeeded.
  for (const number of wanted >= 0 ? [wanted] : [3, 0, 1, 4, 2]) {
    for (let pod = 0; pod < pods.count; pod += 1) if (pods.phase[pod] === number) rows.push(pod);
  }
  podTable.rows = rows;
};
const newPodRow = () => {
  const pod = make("button", "link cut");
  pod.type = "button";
  pod.addEventListener("click", () => openPod(pod.textContent));
  return make("tr", "", make("th", "", pod), make("td", "number"), make("td", "number"), make("td", "", make("span", "pod")), make("td", "", make("span", "cut")),
    make("td", "number"), make("td", "number"), make("td", "", make("span", "cut soft")));
};
const drawRows = () => {
  const { pods, rows, now } = podTable;
  if (pods === null) return;
  const view = at("pod-scroll");
  const first = Math.max(0, Math.floor(view.scrollTop / ROW_HEIGHT) - 5);
  const shown = rows.slice(first, first + Math.ceil(VIEW_HEIGHT / ROW_HEIGHT) + 10);
  setStyle(at("pod-before"), "height", `${first * ROW_HEIGHT}px`);
  setStyle(at("pod-after"), "height", `${Math.max(0, rows.length - first - shown.length) * ROW_HEIGHT}px`);
  setAttribute(at("pod-table"), "aria-rowcount", rows.length + 1);
  sync(at("pod-rows"), shown, newPodRow, (row, pod) => {
    const [name, index, attempt, phase, node, ran, restarts, cause] = row.children;
    name.scope = "row";
    setText(name.firstChild, pods.name[pod]);
    setText(index, pods.index[pod] === null ? "" : String(pods.index[pod]));
    setText(attempt, pods.attempt[pod] === null ? "" : String(pods.attempt[pod]));
    setText(phase.firstChild, POD_PHASES[pods.phase[pod]]);
    setClass(phase.firstChild, `pod ${POD_PHASES[pods.phase[pod]].toLowerCase()}`);
    setText(node.firstChild, pods.node[pod] === null ? "" : pods.nodes[pods.node[pod]]);
    const start = pods.started[pod];
    setText(ran, start === null ? "" : span((pods.ended[pod] ?? now) - start));
    setText(restarts, pods.restarts[pod] === 0 ? "" : String(pods.restarts[pod]));
    const why = pods.cause[pod] === null ? "" : pods.causes[pods.cause[pod]];
    setText(cause.firstChild, why);
    setAttribute(cause, "title", why);
  });
  shown.forEach((_, place) => setAttribute(at("pod-rows").children[place], "aria-rowindex", first + place + 2));
};
const showPods = (pods, now) => {
  Object.assign(podTable, { pods, now });
  chooseRows();
  const counts = POD_PHASES.map(() => 0);
  for (const phase of pods.phase) counts[phase] += 1;
  for (const button of at("pod-phases").children) {
    setText(button.querySelector("b"), plain(button.value === "" ? pods.count : counts[POD_PHASES.indexOf(button.value)]));
    setAttribute(button, "aria-pressed", podTable.phase === button.value);
  }
  const why = pods.cutAfter === null ? "" : ` The list of the API server was not complete after ${pods.cutAfter} s.`;
  setText(at("pods-more"), pods.more ? `Only the first ${plain(pods.count)} pods are read.${why}` : "");
  drawRows();
};
const startPodTable = () => {
  for (const phase of ["", "Failed", "Pending", "Running", "Succeeded"]) {
    const button = make("button", "", phase === "" ? "all" : phase.toLowerCase(), make("b"));
    button.type = "button";
    button.value = phase;
    button.setAttribute("aria-pressed", String(phase === ""));
    button.addEventListener("click", () => {
      podTable.phase = phase;
      at("pod-scroll").scrollTop = 0;
      if (podTable.pods !== null) showPods(podTable.pods, podTable.now);
    });
    at("pod-phases").append(button);
  }
  at("pod-scroll").addEventListener("scroll", drawRows, { passive: true });
};
