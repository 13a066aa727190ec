// The log of a pod, followed live: the page asks for what came after its last line.
const LOG_PERIOD = 1000; // ms between an answer and the next question
const LOG_LINES = 5000; // lines that are kept
const podLog = { pod: "", last: "", same: 0, lines: 0, timer: 0, asking: null };

const logProblem = (text) => setText(at("log-state"), text);
/** Adds lines, each with its time before it, unless they were shown: a question knows whole seconds only. */
const addLines = (text) => {
  const fresh = [];
  let skip = podLog.same;
  for (const line of text.split("\n")) {
    if (line === "") continue;
    const space = line.indexOf(" ");
    const time = space < 0 ? line : line.slice(0, space);
    if (time < podLog.last) continue;
    if (time === podLog.last && skip > 0) { skip -= 1; continue; }
    podLog.same = time === podLog.last ? podLog.same + 1 : 1;
    podLog.last = time;
    fresh.push(space < 0 ? "" : line.slice(space + 1));
  }
  if (fresh.length === 0) return;
  const view = at("log-text");
  const isAtEnd = view.scrollHeight - view.scrollTop - view.clientHeight < 40;
  const piece = make("span", "", `${fresh.join("\n")}\n`);
  piece.lines = fresh.length;
  view.append(piece);
  podLog.lines += fresh.length;
  while (podLog.lines > LOG_LINES && view.children.length > 1) {
    podLog.lines -= view.firstChild.lines;
    view.firstChild.remove();
  }
  if (isAtEnd) view.scrollTop = view.scrollHeight;
};
const askLog = async () => {
  clearTimeout(podLog.timer);
  podLog.asking?.abort();
  if (podLog.pod === "" || address.tab !== "log" || address.job === "") return;
  const own = podLog.asking = new AbortController();
  const [namespace, name] = address.job.split("/");
  const parameters = { namespace, name, pod: podLog.pod, previous: at("log-previous").checked };
  if (at("log-container").value) parameters.container = at("log-container").value;
  if (podLog.last) parameters.since = podLog.last;
  try {
    const answer = await accepted(await request("/debug/job/log", parameters, { signal: own.signal }));
    const text = await answer.text();
    if (own !== podLog.asking) return;
    addLines(text);
    logProblem(podLog.lines === 0 ? "no lines yet" : at("log-follow").checked ? "following" : "");
  } catch (error) {
    if (own !== podLog.asking) return;
    logProblem(error.message);
  }
  if (at("log-follow").checked && !document.hidden) podLog.timer = setTimeout(askLog, LOG_PERIOD);
};
const restartLog = () => {
  Object.assign(podLog, { last: "", same: 0, lines: 0 });
  at("log-text").replaceChildren();
  logProblem(podLog.pod === "" ? "choose a pod: in the table of pods, the map or the timeline" : "");
  setText(at("log-pod"), podLog.pod);
  askLog();
};
const showLog = (whole) => {
  const names = [...(whole?.initContainers || []), ...(whole?.containers || [])];
  const chosen = at("log-container").value || whole?.containers?.[0] || "";
  sync(at("log-container"), names, () => make("option"), (option, name) => { setText(option, name); option.value = name; });
  at("log-container").value = chosen;
  if (podLog.pod !== address.pod) { podLog.pod = address.pod; restartLog(); }
};
const startLog = () => {
  for (const id of ["log-container", "log-previous"]) at(id).addEventListener("change", restartLog);
  at("log-follow").addEventListener("change", askLog);
};
/** Shows the log of a pod of the opened Job. */
const openPod = (pod) => {
  go({ tab: "log", pod }, true);
  showTab();
  showLog(opened.whole);
  at("tab-log").focus();
};
