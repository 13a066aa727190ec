// The opened Job: what the replicas know of it at once, and what the API server says with the viewer's rights.
const JOB_PERIOD = 2000; // ms between an answer about the Job and the next question
const PODS_SHARE = 5; // pods are read again after this many times the time that it took
let opened = null, jobTimer = 0, jobQuestion = null;

const newOpened = (key) => ({ key, seen: undefined, whole: null, pods: emptyPods(), signature: "", readAt: 0, readTook: 0 });
const sinceText = (text, now) => `${span((now - Date.parse(text)) / 1000)} ago`;
const limit = (count, most) => (most === null || most === undefined ? plain(count) : `${plain(count)} of at most ${plain(most)}`);

/** The tiles: a name, a value, a remark, and whether it needs a look. */
const tiles = ({ seen, whole }, now, overview) => {
  const job = whole?.job;
  const list = [];
  const add = (name, value, remark, look) => list.push({ name, value, remark: remark || "", look: look || "" });
  const succeeded = job ? job.succeeded : seen.succeeded;
  const completions = job ? job.completions : seen.completions;
  add("Succeeded", `${plain(succeeded)}${completions === null || completions === undefined ? "" : ` / ${plain(completions)}`}`,
    job?.rate ? `${job.rate.toFixed(job.rate < 1 ? 2 : 1)} a second${job.secondsLeft ? `, ${span(job.secondsLeft)} left` : ""}` : "");
  const [active, ready] = job ? [job.active, job.ready] : [seen.active, seen.ready];
  if (!seen?.finished) add("Active", `${plain(active)} of ${plain(job?.parallelism ?? seen.parallelism)}`, `${plain(ready)} ready`);
  const failed = job ? job.failed : seen.failed;
  const indexed = job && job.backoffLimitPerIndex !== null;
  add("Failed pods", limit(failed, indexed ? null : job?.backoffLimit), indexed ? `${plain(job.backoffLimitPerIndex + 1)} tries an index` : "", failed > 0 ? "bad" : "");
  if (job?.failedIndexes) {
    const count = ranges(job.failedIndexes).reduce((sum, [first, last]) => sum + last - first + 1, 0);
    add("Failed indexes", limit(count, job.maxFailedIndexes), job.failedIndexes, "bad");
  }
  if (job?.startTime) {
    const end = job.endTime ? Date.parse(job.endTime) : now;
    const ran = (end - Date.parse(job.startTime)) / 1000;
    add(job.endTime ? "Ran" : "Runs for", span(ran), whole.activeDeadlineSeconds === null ? "" : `deadline after ${span(whole.activeDeadlineSeconds)}`);
    if (job.endTime && whole.ttlSecondsAfterFinished !== null) {
      add("Deleted in", span(Date.parse(job.endTime) / 1000 + whole.ttlSecondsAfterFinished - now / 1000), "by its TTL");
    }
  }
  const shard = seen && overview.shards[seen.shard];
  if (shard) add("Owner", shard.owner || "no owner", `shard ${shard.shard}, epoch ${shard.epoch}`, shard.owner ? "" : "bad");
  return list;
};
const showTiles = (list) => {
  const create = () => make("div", "", make("dt"), make("dd"), make("dd", "soft"));
  sync(at("job-facts"), list, create, (tile, { name, value, remark, look }) => {
    setClass(tile, look);
    setText(tile.children[0], name);
    setText(tile.children[1], value);
    setText(tile.children[2], remark);
    setAttribute(tile, "title", remark);
  });
};
const showReason = ({ seen, whole }, now) => {
  const end = whole?.job.conditions.find(({ type, status }) => ["Failed", "FailureTarget"].includes(type) && status === "True");
  const reason = end ? end.reason : seen?.reason;
  const message = end ? end.message : seen?.message;
  const isFailure = Boolean(end) || seen?.phase === "failed";
  at("job-reason").hidden = !reason;
  setClass(at("job-reason"), isFailure ? "reason failed" : "reason");
  setText(at("reason-word"), reason || "");
  const wait = seen?.until === undefined ? 0 : (Date.parse(seen.until) - now) / 1000;
  setText(at("reason-left"), !isFailure && wait > 0 ? `${span(wait)} left` : "");
  setText(at("reason-text"), message || "");
};
const showHead = (view, now, overview) => {
  const { key, seen, whole } = view;
  const [namespace, name] = key.split("/");
  setText(at("job-namespace"), namespace);
  setText(at("job-title"), name || key);
  document.title = `${key} \u00b7 Yardmaster`;
  const phase = seen?.phase || (whole ? { Complete: "complete", Failed: "failed", Suspended: "suspended" }[whole.job.state] || "running" : "");
  setText(at("job-phase"), phase);
  setClass(at("job-phase"), `phase ${phase}`);
  const ended = whole?.job.endTime || seen?.finished;
  const created = whole?.created || seen?.created;
  setText(at("job-when"), ended ? `ended ${sinceText(ended, now)}` : created ? `created ${sinceText(created, now)}` : "");
  setText(at("trace-id"), whole?.job.traceId || (seen ? seen.uid.replaceAll("-", "") : ""));
  setText(at("trace-command"), `yardmaster trace ${key}`);
  // The operator has chosen the address.
  at("trace-link").hidden = !whole?.traceUrl;
  if (whole?.traceUrl) setAttribute(at("trace-link"), "href", whole.traceUrl);
  const isKnown = Boolean(seen || whole);
  at("job-missing").hidden = isKnown || view.seen === undefined;
  showReason(view, now);
  if (isKnown) showTiles(tiles(view, now, overview));
};

/** Shows what the replicas know. */
const showOpened = (overview) => {
  if (opened === null) return;
  opened.seen = overview.job ?? null;
  opened.overview = overview;
  const now = Date.parse(overview.at);
  showHead(opened, now, overview);
  showWhy(opened, now);
};

const needsPods = (view) => {
  const { job } = view.whole;
  const signature = [job.uid, job.active, job.ready, job.succeeded, job.failed, job.state].join();
  const rest = Math.max(JOB_PERIOD, PODS_SHARE * view.readTook);
  const age = performance.now() - view.readAt;
  if (view.readAt > 0 && (age < rest || (signature === view.signature && (age < 10_000 || job.endTime)))) return false;
  view.signature = signature;
  return true;
};
const showLive = async (view, isCurrent) => {
  const now = Math.floor(Date.now() / 1000);
  const steps = [
    () => { view.indexes = indexesOf(view.whole, view.pods); },
    () => showMap(view.indexes, view.pods),
    () => showNodes(view.pods),
    () => showPods(view.pods, now),
    () => { if (view.seen !== undefined) showWhy(view, Date.now()); },
    () => showTimeline(view.pods, now, isCurrent),
  ];
  // Each is short, and the browser draws in between.
  for (const step of steps) {
    await turn();
    if (!isCurrent()) return;
    await step();
  }
};
/** Why nothing live is shown, and what helps. */
const showAccess = (error) => {
  at("viewer").hidden = !(error && error.code === 401);
  const is = { 401: "", 403: `The API server refuses: ${error?.message}`, 404: error?.message.includes("not found") ? "" : "This page cannot ask the API server: see \u201cWho may see it\u201d in its documentation." }[error?.code];
  setText(at("live-problem"), error ? is ?? error.message : "");
  at("live-part").hidden = Boolean(error && [401, 404].includes(error.code));
};

const askJob = async () => {
  clearTimeout(jobTimer);
  jobQuestion?.abort();
  const view = opened;
  if (view === null) return;
  const own = jobQuestion = new AbortController();
  const isCurrent = () => opened === view && jobQuestion === own;
  const [namespace, name] = view.key.split("/");
  const job = { namespace, name };
  let isFinal = false;
  try {
    const answer = await accepted(await request("/debug/job", job, { signal: own.signal }));
    view.whole = await answer.json();
    if (!isCurrent()) return;
    showAccess(null);
    showConditions(view.whole);
    showLog(view.whole);
    await readRights(job, own.signal);
    showActions(view.whole);
    await readTab(job, own.signal);
    if (needsPods(view)) {
      const began = performance.now();
      const pods = await readPods(job, own.signal);
      if (!isCurrent()) return;
      Object.assign(view, { pods, readAt: performance.now(), readTook: performance.now() - began });
      await showLive(view, isCurrent);
    }
  } catch (error) {
    if (!isCurrent()) return;
    // A Job of this name may come.
    isFinal = error.code === 401 || (error.code === 404 && !error.message.includes("not found"));
    showAccess(error);
  } finally {
    if (isCurrent() && !document.hidden && !isFinal) jobTimer = setTimeout(askJob, JOB_PERIOD);
  }
};

/** Shows the Job of the address, or the list. */
const showPlace = () => {
  const isOpen = address.job !== "";
  at("list-view").hidden = isOpen;
  at("job-view").hidden = !isOpen;
  document.body.classList.toggle("opened", isOpen);
  if (!isOpen) {
    const before = opened;
    opened = null;
    jobQuestion?.abort();
    document.title = "Yardmaster";
    if (before) (rowLinks().find((link) => link.textContent === before.key) || at("jobs")).focus();
    return;
  }
  if (opened?.key !== address.job) {
    opened = newOpened(address.job);
    Object.assign(rights, { key: "", switchedOn: false, actions: [] });
    Object.assign(texts, { events: 0, yaml: 0 });
    for (const id of ["map-section", "timeline-section", "nodes-section", "why-section", "next-section", "job-reason"]) at(id).hidden = true;
    at("job-facts").replaceChildren();
    at("job-actions").replaceChildren();
    showPods(emptyPods(), 0);
    showHead(opened, Date.now(), { shards: [] });
    at("job-view").focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  showTab();
  showLog(opened.whole);
  askJob();
};
const closeJob = () => { go({ job: "", tab: "", pod: "" }, true); showPlace(); ask(); };
const startJob = () => {
  at("back").addEventListener("click", (event) => { event.preventDefault(); closeJob(); });
  document.addEventListener("keydown", (event) => {
    const isTyping = ["INPUT", "SELECT"].includes(event.target.tagName);
    if (event.key === "Escape" && opened !== null && !isTyping && !at("confirm").open) closeJob();
  });
  at("viewer").addEventListener("submit", (event) => {
    event.preventDefault();
    setToken("viewer", at("viewer-token").value.trim());
    at("viewer-token").value = "";
    askJob();
  });
  at("trace-copy").append(copyButton(at("trace-id")));
  at("trace-command-copy").append(copyButton(at("trace-command")));
};
