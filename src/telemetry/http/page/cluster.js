// Replicas, shards, hand-overs and the write gate.
const HISTORY = 240; // points of the curve: about two minutes
const FRESH = 3000; // ms that a shard is marked as new with its owner
const PRIORITIES = ["status", "finalizer", "delete", "create", "progress", "report", "event"];
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const letters = new Map(); // identity -> position among the replicas ever seen
const owners = new Map(); // shard -> owner as shown
const curve = [];
let announced = null; // time of the latest hand-over that has been announced

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
  curve.push([flight, queued]);
  if (curve.length > HISTORY) curve.shift();
  drawCurve();
};
const drawCurve = () => {
  const top = Math.max(8, ...curve.map((point) => Math.max(...point)));
  // Square roots keep a few writes visible beside thousands.
  const height = (value) => (34 - 32 * Math.sqrt(value / top)).toFixed(1);
  const path = (which) => curve
    .map((point, index) => `${index === 0 ? "M" : "L"}${HISTORY - curve.length + index} ${height(point[which])}`)
    .join("");
  at("spark-flight").setAttribute("d", path(0));
  at("spark-queued").setAttribute("d", path(1));
};
