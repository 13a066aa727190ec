// The log of a pod, followed live: the page asks for what came after its last line.
const LOG_PERIOD = 1000; // ms between an answer and the next question
const LOG_LINES = 5000; // lines that are kept
// The time of the last line, and how many lines of that time are shown.
const podLog = { pod: "", last: "", same: 0, lines: 0, open: null, timer: 0, asking: null };

const logProblem = (text) => setText(at("log-state"), text);
/** The time before a line and the line; a line of the kubelet itself has no time. */
const timed = (line) => (/^(\d{4}-\S+) (.*)$/s.exec(line) || ["", "", line]).slice(1);
/** Adds lines behind the last one. Returns a word of the kubelet, if there is one. */
const addLines = (text) => {
  const view = at("log-text");
  const isAtEnd = view.scrollHeight - view.scrollTop - view.clientHeight < 40;
  // Without a last line, the same lines come again.
  if (podLog.last === "") { view.replaceChildren(); podLog.lines = 0; }
  const lines = text.split("\n");
  const open = lines.pop();
  const fresh = [];
  let word = "";
  for (const line of lines) {
    const [time, rest] = timed(line);
    if (time === "") { word = rest; continue; }
    podLog.same = time === podLog.last ? podLog.same + 1 : 1;
    podLog.last = time;
    fresh.push(rest);
  }
  podLog.open?.remove();
  if (fresh.length > 0) {
    const piece = make("span", "", `${fresh.join("\n")}\n`);
    piece.lines = fresh.length;
    view.append(piece);
    podLog.lines += fresh.length;
  }
  while (podLog.lines > LOG_LINES && view.children.length > 1) {
    podLog.lines -= view.firstChild.lines;
    view.firstChild.remove();
  }
  // The end of this line may follow: it comes again.
  podLog.open = open === "" ? null : make("span", "", timed(open)[1]);
  if (podLog.open) view.append(podLog.open);
  if (isAtEnd) view.scrollTop = view.scrollHeight;
  return word;
};
const askLog = async () => {
  clearTimeout(podLog.timer);
  podLog.asking?.abort();
  if (podLog.pod === "" || address.tab !== "log" || address.job === "") return;
  const own = podLog.asking = new AbortController();
  const [namespace, name] = address.job.split("/");
  const parameters = { namespace, name, pod: podLog.pod, previous: at("log-previous").checked };
  if (at("log-container").value) parameters.container = at("log-container").value;
  if (podLog.last) Object.assign(parameters, { since: podLog.last, skip: podLog.same });
  let hasMore = false;
  try {
    const answer = await accepted(await request("/debug/job/log", parameters, { signal: own.signal }));
    const text = await answer.text();
    if (own !== podLog.asking) return;
    const word = addLines(text);
    hasMore = answer.headers.get("Yardmaster-Log") === "more";
    const isShown = podLog.lines > 0 || podLog.open !== null;
    logProblem(word || (hasMore ? "more lines follow" : !isShown ? "no lines yet" : at("log-follow").checked ? "following" : ""));
  } catch (error) {
    if (own !== podLog.asking) return;
    logProblem(error.message);
  }
  if ((hasMore || at("log-follow").checked) && !document.hidden) podLog.timer = setTimeout(askLog, hasMore ? 0 : LOG_PERIOD);
};
const restartLog = () => {
  Object.assign(podLog, { last: "", same: 0, lines: 0, open: null });
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
