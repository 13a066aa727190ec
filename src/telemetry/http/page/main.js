// Asks the server again and again, and shows the answer.
const POLL = 400; // ms between an answer and the next question
let timer = 0, question = null, answered = 0;

const show = (overview) => {
  overview.replicas.forEach((replica) => place(replica.identity));
  const owned = overview.shards.filter((shard) => shard.owner).length;
  const silent = overview.replicas.filter((one) => one.heartbeat_age_ms >= one.lease_duration_ms).length;
  const parts = [plural(overview.replicas.length - silent, "replica")];
  if (silent > 0) parts.push(`${silent} silent`);
  parts.push(`${owned} of ${plural(overview.shards.length, "shard")} owned`, plural(overview.jobs.total, "Job"));
  setText(at("summary"), overview.from.length === 0 ? "No replica answers." : parts.join(" \u00b7 "));
  setText(at("version"), `yardmaster ${overview.version}`);
  showOpened(overview);
  if (opened !== null) return;
  showReplicas(overview);
  showShards(overview);
  showHandovers(overview);
  showGates(overview);
  showJobs(overview);
};

const live = (text, stale) => {
  setText(at("live-text"), text);
  document.body.classList.toggle("stale", stale);
};

const askForToken = (problem) => {
  at("login").hidden = false;
  setText(at("login-problem"), problem);
  live("waiting for a token", true);
};

const ask = async () => {
  clearTimeout(timer);
  if (question) question.abort();
  const own = question = new AbortController();
  const patience = setTimeout(() => own.abort(), PATIENCE);
  const { search, phase, offset: skipped, job } = address;
  const parameters = { search, phase, offset: skipped, limit: job === "" ? ROWS : 0, job };
  try {
    const answer = await request("/debug/overview", parameters, { signal: own.signal });
    if (answer.status === 401) return askForToken(tokens.page ? "This one is not known." : "");
    const overview = await (await accepted(answer)).json();
    // The Job was opened or closed meanwhile.
    if (question !== own || address.job !== job) return;
    answered = Date.now();
    live("live", false);
    show(overview);
    if (opened === null) askMachine().catch(() => {});
  } catch (error) {
    // A newer question has taken its place.
    if (question !== own) return;
    const since = answered === 0 ? "" : `, shown is ${clock(answered)}`;
    live(`no answer${since}`, true);
    at("live").title = String(error.message);
  } finally {
    clearTimeout(patience);
    if (question === own && !document.hidden && at("login").hidden) timer = setTimeout(ask, POLL);
  }
};

const arrive = () => {
  readAddress();
  if (document.activeElement !== at("search")) at("search").value = address.search;
  showPlace();
  ask();
};
startList();
startMap();
startTimeline();
startPodTable();
startLog();
startTabs();
startActions();
startJob();
at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken("page", at("token").value.trim());
  at("token").value = "";
  at("login").hidden = true;
  arrive();
});
// A link to a part of the page would take the place of the filters in the address.
at("skip").addEventListener("click", () => at(opened === null ? "jobs" : "job-view").focus());
addEventListener("hashchange", arrive);
addEventListener("popstate", arrive);
document.addEventListener("visibilitychange", () => { if (!document.hidden) { ask(); askJob(); askLog(); } });
arrive();
