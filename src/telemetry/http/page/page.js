"use strict";
// Names and messages are users' input: they are written as text (textContent) and never parsed.
(() => {
  const POLL = 400; // ms between an answer and the next question
  const PATIENCE = 5000; // ms to wait for an answer
  const ROWS = 50; // Jobs on one page
  const HISTORY = 240; // points of the curve: about two minutes
  const FRESH = 3000; // ms that a shard is marked as new with its owner
  const PHASES = ["running", "waiting", "suspended", "failed", "complete"];
  const PRIORITIES = ["status", "finalizer", "delete", "create", "progress", "report", "event"];
  const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

  const at = (id) => document.getElementById(id);
  const query = { search: "", phase: "", offset: 0 };
  const letters = new Map(); // identity -> position among the replicas ever seen
  const owners = new Map(); // shard -> owner as shown
  const history = [];
  // Behind the # it is never sent to a server, and is in nobody's log.
  let token = decodeURIComponent((/^#token=(.+)$/.exec(location.hash) || ["", ""])[1]);
  let announced = null; // time of the latest hand-over that has been announced
  let timer = 0, question = null, answered = 0;

  const make = (tag, className, ...children) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    element.append(...children);
    return element;
  };
  // The DOM is touched only where something has changed.
  const setText = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  const setClass = (element, name) => { if (element.className !== name) element.className = name; };
  const setAttribute = (element, name, value) => {
    const text = String(value);
    if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  };
  const setStyle = (element, name, value) => {
    if (element.style.getPropertyValue(name) !== value) element.style.setProperty(name, value);
  };
  const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

  /** Brings the children of a list to this number, and calls `update` for each. */
  const sync = (parent, items, create, update) => {
    while (parent.childElementCount > items.length) parent.lastElementChild.remove();
    items.forEach((item, index) => {
      let child = parent.children[index];
      if (!child) { child = create(); parent.append(child); }
      update(child, item);
    });
  };

  const span = (seconds) => {
    const whole = Math.max(0, Math.round(seconds));
    if (whole < 100) return `${whole}s`;
    if (whole < 6000) return `${Math.round(whole / 60)}m`;
    if (whole < 172800) return `${Math.round(whole / 3600)}h`;
    return `${Math.round(whole / 86400)}d`;
  };
  const duration = (ms) => (ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(1)} s`);
  const clock = (time) => new Date(time).toLocaleTimeString("en-GB");

  // Replicas: a letter, a colour and a pattern each.
  const place = (identity) => {
    if (!letters.has(identity)) letters.set(identity, letters.size);
    return letters.get(identity);
  };
  const letter = (identity) => {
    const number = place(identity);
    const round = Math.floor(number / LETTERS.length);
    return LETTERS[number % LETTERS.length] + (round ? String(round) : "");
  };
  const mark = (element, identity, className) => {
    setClass(element, `${className} p${place(identity) % 8}`.trim());
    setStyle(element, "--badge", `var(--r${place(identity) % 8})`);
    setText(element, letter(identity));
  };
  const badge = (identity) => {
    const element = make("span", "badge");
    element.setAttribute("aria-hidden", "true");
    mark(element, identity, "badge");
    return element;
  };

  const track = (className, ...parts) => make("span", className, ...parts.map((part) => make("i", part)));

  const showReplicas = (overview) => {
    const counts = new Map();
    for (const { owner } of overview.shards) if (owner) counts.set(owner, (counts.get(owner) || 0) + 1);
    const create = () => {
      const name = make("span", "cut");
      const beat = make("span", "beat", track("track", "done"), make("b"), make("span"));
      const row = make("tr", "", make("td", "", make("span", "replica", make("span", "badge"), name)),
        make("td", "number"), make("td", "", beat));
      row.querySelector(".badge").setAttribute("aria-hidden", "true");
      row.querySelector(".track").setAttribute("aria-hidden", "true");
      return row;
    };
    sync(at("replica-rows"), overview.replicas, create, (row, replica) => {
      const [name, shards, beat] = row.children;
      mark(name.querySelector(".badge"), replica.identity, "badge");
      const text = name.querySelector(".cut");
      setText(text, replica.identity);
      setAttribute(text, "title", replica.identity);
      setText(shards, String(counts.get(replica.identity) || 0));
      const share = replica.heartbeat_age_ms / replica.lease_duration_ms;
      const state = share >= 1 ? "silent" : share >= 0.5 ? "late" : "";
      const beating = beat.firstChild;
      setClass(beating, `beat ${state}`.trim());
      setStyle(beating.querySelector("i"), "width", `${Math.min(100, share * 100).toFixed(0)}%`);
      setText(beating.children[1], state);
      const age = `${(replica.heartbeat_age_ms / 1000).toFixed(1)} s ago`;
      setText(beating.children[2], replica.leaving ? `${age}, leaving` : age);
    });
  };

  const showShards = (overview) => {
    const now = performance.now();
    sync(at("shard-map"), overview.shards, () => make("li"), (cell, shard) => {
      const owner = shard.owner || "";
      if (owners.has(shard.shard) && owners.get(shard.shard) !== owner) cell.fresh = now;
      owners.set(shard.shard, owner);
      const moving = ["claiming", "syncing", "draining", "lost"].includes(shard.state);
      const fresh = cell.fresh && now - cell.fresh < FRESH;
      const classes = [fresh ? "fresh" : "", moving ? "moving" : ""].filter(Boolean).join(" ");
      if (owner) {
        mark(cell, owner, classes);
      } else {
        setClass(cell, `nobody ${classes}`.trim());
        setStyle(cell, "--badge", "transparent");
        setText(cell, "\u2013");
      }
      const jobs = shard.jobs === undefined ? "" : `, ${plural(shard.jobs, "Job")}`;
      const state = shard.state && shard.state !== "active" ? `, ${shard.state}` : "";
      const label = `Shard ${shard.shard}: ${owner || "no owner"}, epoch ${shard.epoch}${state}${jobs}`;
      setAttribute(cell, "title", label);
      setAttribute(cell, "aria-label", label);
    });
    const owned = overview.shards.filter((shard) => shard.owner).length;
    const all = overview.shards.length;
    setText(at("shard-summary"), owned === all ? `all ${all} owned` : `${owned} of ${all} owned`);
  };

  // Shards that go the same way at the same time are one line.
  const groups = (handovers) => {
    const lines = [];
    for (const one of handovers) {
      const time = Date.parse(one.at);
      const same = lines.find((line) => line.to === one.to && line.from === one.from && line.since - time < 2000);
      const took = (one.unowned_ms || 0) + (one.syncing_ms || 0);
      if (same) {
        same.shards.push(one.shard);
        same.since = time;
        same.took = Math.max(same.took, took);
        same.known = same.known || one.syncing_ms !== undefined;
      } else {
        const known = one.syncing_ms !== undefined;
        lines.push({ from: one.from, to: one.to, at: time, since: time, shards: [one.shard], took, known });
      }
    }
    return lines;
  };

  const showHandovers = (overview) => {
    const lines = groups(overview.handovers);
    const create = () => make("li", "", make("time"), make("span", "what"), make("span"), make("span", "took"));
    sync(at("handovers"), lines, create, (line, group) => {
      const [time, what, way, took] = line.children;
      setText(time, clock(group.at));
      setText(what, group.shards.length === 1 ? `shard ${group.shards[0]}` : plural(group.shards.length, "shard"));
      const sign = `${group.from || ""}\n${group.to}`;
      if (way.sign !== sign) {
        way.sign = sign;
        const from = group.from ? badge(group.from) : "nobody";
        way.replaceChildren(from, " \u2192 ", badge(group.to), make("span", "hidden", wayText(group)));
      }
      const shards = group.shards.slice().sort((one, other) => one - other).join(", ");
      setAttribute(line, "title", `${wayText(group)}: ${group.shards.length === 1 ? "shard" : "shards"} ${shards}`);
      setText(took, group.known ? `in ${duration(group.took)}` : "");
    });
    setText(at("handover-summary"), lines.length === 0 ? "none seen yet" : "");
    announce(lines);
  };
  const wayText = (group) => `from ${group.from || "nobody"} to ${group.to}`;
  const announce = (lines) => {
    const latest = lines.length === 0 ? 0 : lines[0].at;
    if (announced !== null && latest > announced) {
      const fresh = lines.filter((line) => line.at > announced);
      const text = fresh.map((line) => `${plural(line.shards.length, "shard")} went ${wayText(line)}`);
      setText(at("announcements"), text.join("; "));
    }
    announced = latest;
  };

  const showGates = (overview) => {
    const create = () => {
      const bar = make("span", "progress", track("track", "done"), make("output"));
      const row = make("tr", "", make("td", "", make("span", "badge")), make("td", "", bar));
      PRIORITIES.forEach(() => row.append(make("td", "number")));
      return row;
    };
    sync(at("gate-rows"), overview.gates, create, (row, gate) => {
      const mine = row.querySelector(".badge");
      mark(mine, gate.replica, "badge");
      setAttribute(mine, "title", gate.replica);
      const bar = row.querySelector(".track");
      const share = gate.window > 0 ? Math.min(1, gate.in_flight / gate.window) : 0;
      setStyle(bar.firstChild, "width", `${(share * 100).toFixed(0)}%`);
      setAttribute(bar, "role", "meter");
      setAttribute(bar, "aria-label", `Writes in flight of ${gate.replica}`);
      setAttribute(bar, "aria-valuenow", gate.in_flight);
      setAttribute(bar, "aria-valuemin", 0);
      setAttribute(bar, "aria-valuemax", gate.window);
      setText(row.querySelector("output"), `${gate.in_flight} / ${gate.window}`);
      PRIORITIES.forEach((priority, index) => {
        const count = gate.queued[priority] || 0;
        setText(row.children[index + 2], count.toLocaleString("en"));
        setClass(row.children[index + 2], count === 0 ? "number none" : "number");
      });
    });
    const sum = (number) => overview.gates.reduce((total, gate) => total + number(gate), 0);
    const flight = sum((gate) => gate.in_flight);
    const queued = sum((gate) => Object.values(gate.queued).reduce((total, count) => total + count, 0));
    const fenced = sum((gate) => gate.fenced);
    setText(at("gate-flight"), `${flight.toLocaleString("en")} in flight`);
    setText(at("gate-queued"), `${queued.toLocaleString("en")} waiting`);
    setText(at("gate-fenced"), fenced > 0 ? `${fenced.toLocaleString("en")} fenced` : "");
    history.push([flight, queued]);
    if (history.length > HISTORY) history.shift();
    drawHistory();
  };
  const drawHistory = () => {
    const top = Math.max(8, ...history.map((point) => Math.max(...point)));
    // Square roots keep a few writes visible beside thousands.
    const height = (value) => (34 - 32 * Math.sqrt(value / top)).toFixed(1);
    const path = (which) => history
      .map((point, index) => `${index === 0 ? "M" : "L"}${HISTORY - history.length + index} ${height(point[which])}`)
      .join("");
    at("spark-flight").setAttribute("d", path(0));
    at("spark-queued").setAttribute("d", path(1));
  };

  const newRow = () => {
    const head = make("th", "", make("span", "cut", make("span", "soft"), make("span", "name")));
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
    setText(age, span((now - Date.parse(job.created)) / 1000));
  };

  const showJobs = (overview) => {
    const { jobs } = overview;
    const now = Date.parse(overview.at);
    // The list has become shorter than the page that is shown.
    if (query.offset > 0 && query.offset >= jobs.matching) {
      query.offset = Math.max(0, Math.floor((jobs.matching - 1) / ROWS) * ROWS);
      ask();
    }
    sync(at("job-rows"), jobs.items, newRow, (row, job) => showJob(row, job, now));
    const found = PHASES.reduce((total, phase) => total + (jobs.phases[phase] || 0), 0);
    for (const button of at("phases").children) {
      const phase = button.value;
      setText(button.querySelector("b"), (phase === "" ? found : jobs.phases[phase] || 0).toLocaleString("en"));
      setAttribute(button, "aria-pressed", query.phase === phase);
    }
    const last = query.offset + jobs.items.length;
    const none = jobs.total === 0 ? "No Jobs yet." : "No Job is like that.";
    const range = `${(query.offset + 1).toLocaleString("en")}\u2013${last.toLocaleString("en")} of ${plural(jobs.matching, "Job")}`;
    setText(at("range"), jobs.items.length === 0 ? none : range);
    at("previous").disabled = query.offset === 0;
    at("next").disabled = last >= jobs.matching;
  };

  const show = (overview) => {
    overview.replicas.forEach((replica) => place(replica.identity));
    const owned = overview.shards.filter((shard) => shard.owner).length;
    const silent = overview.replicas.filter((one) => one.heartbeat_age_ms >= one.lease_duration_ms).length;
    const parts = [plural(overview.replicas.length - silent, "replica")];
    if (silent > 0) parts.push(`${silent} silent`);
    parts.push(`${owned} of ${plural(overview.shards.length, "shard")} owned`, plural(overview.jobs.total, "Job"));
    setText(at("summary"), overview.from.length === 0 ? "No replica answers." : parts.join(" \u00b7 "));
    showReplicas(overview);
    showShards(overview);
    showHandovers(overview);
    showGates(overview);
    showJobs(overview);
    setText(at("version"), `yardmaster ${overview.version}`);
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
    const parameters = new URLSearchParams({ ...query, limit: ROWS });
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    try {
      const answer = await fetch(`/debug/overview?${parameters}`, { headers, signal: own.signal });
      if (answer.status === 401) return askForToken(token ? "This one is not known." : "");
      if (!answer.ok) throw new Error(`${answer.status} ${(await answer.text()).trim()}`);
      const overview = await answer.json();
      if (question !== own) return;
      answered = Date.now();
      live("live", false);
      show(overview);
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

  for (const phase of ["", ...PHASES]) {
    const button = make("button", "", phase === "" ? "all" : phase, make("b"));
    button.type = "button";
    button.value = phase;
    button.setAttribute("aria-pressed", String(phase === ""));
    button.addEventListener("click", () => { query.phase = phase; query.offset = 0; ask(); });
    at("phases").append(button);
  }
  at("search").addEventListener("input", (event) => { query.search = event.target.value.trim(); query.offset = 0; ask(); });
  at("previous").addEventListener("click", () => { query.offset = Math.max(0, query.offset - ROWS); ask(); });
  at("next").addEventListener("click", () => { query.offset += ROWS; ask(); });
  at("login").addEventListener("submit", (event) => {
    event.preventDefault();
    token = at("token").value.trim();
    at("token").value = "";
    at("login").hidden = true;
    ask();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
  ask();
})();
