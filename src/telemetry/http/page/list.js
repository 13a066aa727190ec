// The list of Jobs.
const ROWS = 50; // Jobs on one page
const PHASES = ["running", "waiting", "suspended", "failed", "complete"];

const newRow = () => {
  const link = make("a", "cut open", make("span", "soft"), make("span", "name"));
  link.tabIndex = -1;
  const head = make("th", "", link);
  head.scope = "row";
  const bar = track("track", "done", "active");
  bar.setAttribute("role", "progressbar");
  bar.setAttribute("aria-valuemin", "0");
  const state = make("td", "", make("span", "state", make("span", "phase"), make("span", "soft")));
  return make("tr", "", head, make("td", "", make("span", "progress", bar, make("output"))),
    make("td", "number"), make("td", "number"), state, make("td", "number"));
};

const showProgress = (cell, job) => {
  const [bar, count] = cell.firstChild.children;
  const wanted = job.completions === undefined ? job.succeeded + job.active : job.completions;
  const share = (pods) => (wanted > 0 ? Math.min(100, (100 * pods) / wanted) : job.phase === "complete" ? 100 : 0);
  setClass(bar, job.phase === "failed" ? "track failed" : "track");
  setStyle(bar.children[0], "width", `${share(job.succeeded).toFixed(2)}%`);
  setStyle(bar.children[1], "width", `${share(Math.min(job.active, wanted - job.succeeded)).toFixed(2)}%`);
  setAttribute(bar, "aria-label", `Progress of ${job.namespace}/${job.name}`);
  setAttribute(bar, "aria-valuemax", Math.max(wanted, 1));
  setAttribute(bar, "aria-valuenow", job.succeeded);
  const of = job.completions === undefined ? "" : ` / ${job.completions.toLocaleString("en")}`;
  setText(count, `${job.succeeded.toLocaleString("en")}${of}`);
};

// A pod that failed, on one line.
const failure = ({ pod, index, node, exit_code, reason, message }) => {
  const where = [index === undefined ? "" : ` (index ${index})`, node === undefined ? "" : ` on ${node}`].join("");
  const code = exit_code === undefined ? "" : ` exit code ${exit_code}`;
  const why = reason === undefined ? "" : ` ${reason}`;
  return `${pod}${where}:${code}${why}${message === undefined ? "" : `: ${message}`}`;
};

const showJob = (row, job, now) => {
  const [head, progress, active, failed, state, age] = row.children;
  const [namespace, name] = head.firstChild.children;
  setAttribute(head.firstChild, "href", addressWith({ job: `${job.namespace}/${job.name}`, tab: "", pod: "" }));
  setText(namespace, `${job.namespace}/`);
  setText(name, job.name);
  setAttribute(head, "title", `${job.namespace}/${job.name}`);
  showProgress(progress, job);
  setText(active, job.active.toLocaleString("en"));
  setClass(active, job.active === 0 ? "number none" : "number");
  setAttribute(active, "title", `${job.ready} ready of ${plural(job.active, "active pod")}`);
  setText(failed, job.failed.toLocaleString("en"));
  setClass(failed, job.failed === 0 ? "number none" : "number bad");
  setAttribute(failed, "title", (job.last_failures || []).map(failure).join("\n"));
  const [phase, why] = state.firstChild.children;
  setClass(phase, `phase ${job.phase}`);
  setText(phase, job.phase);
  const wait = job.until === undefined ? 0 : (Date.parse(job.until) - now) / 1000;
  const left = wait > 0 ? `, ${span(wait)} left` : "";
  const reason = job.reason === undefined ? "" : `${job.reason}${left}`;
  const message = job.message === undefined ? "" : `: ${job.message}`;
  setText(why, reason + message);
  setAttribute(state, "title", reason + message);
  const end = job.finished === undefined ? NaN : Date.parse(job.finished);
  setText(age, Number.isNaN(end) ? span((now - Date.parse(job.created)) / 1000) : `${span((now - end) / 1000)} ago`);
  setAttribute(age, "title", Number.isNaN(end) ? "" : `ended ${clock(end)}, ${span((end - Date.parse(job.created)) / 1000)} after its creation`);
};

const showJobs = (overview) => {
  const { jobs } = overview;
  const now = Date.parse(overview.at);
  // The list has become shorter than the page that is shown.
  if (address.offset > 0 && address.offset >= jobs.matching) {
    go({ offset: Math.max(0, Math.floor((jobs.matching - 1) / ROWS) * ROWS) });
    ask();
  }
  sync(at("job-rows"), jobs.items, newRow, (row, job) => showJob(row, job, now));
  if (!at("job-rows").querySelector('a.open[tabindex="0"]')) markRow(0, false);
  const found = PHASES.reduce((total, phase) => total + (jobs.phases[phase] || 0), 0);
  for (const button of at("phases").children) {
    const phase = button.value;
    setText(button.querySelector("b"), (phase === "" ? found : jobs.phases[phase] || 0).toLocaleString("en"));
    setAttribute(button, "aria-pressed", address.phase === phase);
  }
  const last = address.offset + jobs.items.length;
  const none = jobs.total === 0 ? "No Jobs yet." : "No Job is like that.";
  const range = `${(address.offset + 1).toLocaleString("en")}\u2013${last.toLocaleString("en")} of ${plural(jobs.matching, "Job")}`;
  setText(at("range"), jobs.items.length === 0 ? none : range);
  at("previous").disabled = address.offset === 0;
  at("next").disabled = last >= jobs.matching;
};

const rowLinks = () => [...at("job-rows").querySelectorAll("a.open")];
/** One row is in the order of Tab; arrows go on from there. */
const markRow = (index, focus) => {
  const links = rowLinks();
  const chosen = links[Math.min(Math.max(index, 0), links.length - 1)];
  links.forEach((link) => { link.tabIndex = link === chosen ? 0 : -1; });
  if (chosen && focus) chosen.focus();
};

const startList = () => {
  for (const phase of ["", ...PHASES]) {
    const button = make("button", "", phase === "" ? "all" : phase, make("b"));
    button.type = "button";
    button.value = phase;
    button.setAttribute("aria-pressed", String(phase === address.phase));
    button.addEventListener("click", () => { go({ phase, offset: 0 }); ask(); });
    at("phases").append(button);
  }
  at("search").addEventListener("input", (event) => { go({ search: event.target.value.trim(), offset: 0 }); ask(); });
  at("previous").addEventListener("click", () => { go({ offset: Math.max(0, address.offset - ROWS) }, true); ask(); });
  at("next").addEventListener("click", () => { go({ offset: address.offset + ROWS }, true); ask(); });
  at("job-rows").addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    // The link itself does the same, and may be opened in another tab.
    if (row && !event.target.closest("a") && String(getSelection()) === "") row.querySelector("a.open").click();
  });
  at("job-rows").addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    markRow(rowLinks().indexOf(document.activeElement) + step, true);
  });
  at("job-rows").addEventListener("focusin", (event) => {
    const index = rowLinks().indexOf(event.target);
    if (index >= 0) markRow(index, false);
  });
};
