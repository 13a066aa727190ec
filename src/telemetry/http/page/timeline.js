// The timeline of attempts: each pod from its start to its end, in as many lanes as pods ran at once.
const LANES = 220; // rows of pixels
const AXIS = 18;
const timeline = { pods: null, order: [], lane: [], lanes: 0, from: 0, to: 1, shown: -1 };
let drawTimeline = () => {};

/** Packs the pods into lanes: a pod gets the first lane that is free. */
const layOut = async (pods, now, isCurrent) => {
  const pause = breather();
  const begin = (pod) => pods.started[pod] ?? pods.created[pod] ?? now;
  const keys = new Float64Array(pods.count);
  for (let pod = 0; pod < pods.count; pod += 1) keys[pod] = begin(pod) * 131_072 + pod;
  keys.sort();
  await pause();
  const lane = new Int32Array(pods.count);
  const order = new Int32Array(pods.count);
  // Lanes by the time at which they are free, the earliest first: a heap of numbers with the lane in the low part.
  const heap = [];
  const size = 1_048_576;
  const swap = (one, other) => { [heap[one], heap[other]] = [heap[other], heap[one]]; };
  const push = (value) => {
    heap.push(value);
    for (let at_ = heap.length - 1; at_ > 0;) {
      const above = (at_ - 1) >> 1;
      if (heap[above] <= heap[at_]) break;
      swap(at_, above);
      at_ = above;
    }
  };
  const replaceTop = (value) => {
    heap[0] = value;
    for (let at_ = 0; ;) {
      const left = 2 * at_ + 1, right = left + 1;
      let least = at_;
      if (left < heap.length && heap[left] < heap[least]) least = left;
      if (right < heap.length && heap[right] < heap[least]) least = right;
      if (least === at_) return;
      swap(at_, least);
      at_ = least;
    }
  };
  let from = Infinity, to = -Infinity;
  for (let place = 0; place < pods.count; place += 1) {
    const pod = keys[place] % 131_072;
    order[place] = pod;
    const start = begin(pod), end = pods.ended[pod] ?? now;
    from = Math.min(from, start);
    to = Math.max(to, end);
    if (heap.length > 0 && Math.floor(heap[0] / size) <= start) {
      lane[pod] = heap[0] % size;
      replaceTop((Math.max(end, start) + 1) * size + lane[pod]);
    } else {
      lane[pod] = heap.length;
      push((Math.max(end, start) + 1) * size + lane[pod]);
    }
    if (place % 2_000 === 0) { await pause(); if (!isCurrent()) return false; }
  }
  Object.assign(timeline, { pods, order, lane, lanes: heap.length, from, to: Math.max(to, from + 1), now });
  return true;
};

const laneHeight = () => Math.min(14, LANES / Math.max(1, timeline.lanes));
const timelineHeight = () => (timeline.pods === null ? 0 : Math.ceil(Math.max(24, laneHeight() * timeline.lanes)) + AXIS);
const MONTH = 2_592_000; // s
/** Seconds between two lines of the axis, of which there are nine at most, and the text of a time since the begin. */
const tick = (seconds) => [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 604_800].find((step) => seconds / step <= 8) || Math.ceil(seconds / 8 / MONTH) * MONTH;
const offset = (seconds) => (seconds < 120 ? `${seconds}s` : seconds < 7200 ? `${Math.round(seconds / 60)}m` : `${(seconds / 3600).toFixed(1).replace(".0", "")}h`);
let painting = 0;

const paintTimeline = async (context, width, height, color) => {
  const { pods, order, lane, from, to, now } = timeline;
  if (pods === null || pods.count === 0) return;
  const mine = (painting += 1);
  const tall = laneHeight();
  const x = (time) => ((time - from) / (to - from)) * (width - 2) + 1;
  context.font = "11px system-ui, sans-serif";
  const step = tick(to - from);
  for (let time = 0; time <= to - from; time += step) {
    const left = Math.round(x(from + time)) + 0.5;
    context.fillStyle = color("line");
    context.fillRect(left, 0, 1, height - AXIS + 3);
    context.fillStyle = color("soft");
    const text = offset(time);
    context.fillText(text, Math.min(left + 3, width - context.measureText(text).width), height - 5);
  }
  const gap = tall > 4 ? 1 : 0;
  const kinds = [["busy-fill", (phase) => phase === 1 || phase === 4], ["track", (phase) => phase === 0],
    ["good-fill", (phase) => phase === 2], ["bad-fill", (phase) => phase === 3]];
  const pause = breather();
  // Failed pods are drawn last, and at least as wide as an eye can see.
  for (const [name, is] of kinds) {
    context.fillStyle = color(name);
    const failed = name === "bad-fill";
    for (let place = 0; place < order.length; place += 1) {
      const pod = order[place];
      if (!is(pods.phase[pod])) continue;
      const left = x(pods.started[pod] ?? pods.created[pod] ?? now);
      const wide = Math.max(failed ? 2 : 0.7, x(pods.ended[pod] ?? now) - left - (gap ? 0.5 : 0));
      context.fillRect(left, lane[pod] * tall, wide, Math.max(failed ? 2 : 0.7, tall - gap));
      if (place % 1_000 === 0) { await pause(); if (mine !== painting) return; }
    }
  }
  cross(context, x, tall, gap, color, mine);
};
/** A mark at the end of each failed pod, where lanes are high enough. */
const cross = (context, x, tall, gap, color) => {
  const { pods, order, lane } = timeline;
  if (tall < 7) return;
  context.strokeStyle = color("panel");
  context.lineWidth = 1.4;
  context.beginPath();
  for (const pod of order) {
    if (pods.phase[pod] !== 3 || pods.ended[pod] === null) continue;
    const size = Math.min(6, tall - gap - 4);
    const left = Math.max(x(pods.started[pod] ?? pods.created[pod]) + 1, x(pods.ended[pod]) - size - 2), top = lane[pod] * tall + (tall - gap - size) / 2;
    if (x(pods.ended[pod]) - left < size) continue;
    context.moveTo(left, top);
    context.lineTo(left + size, top + size);
    context.moveTo(left + size, top);
    context.lineTo(left, top + size);
  }
  context.stroke();
};

const showTimeline = async (pods, now, isCurrent) => {
  at("timeline-section").hidden = pods.count === 0;
  if (pods.count === 0 || !(await layOut(pods, now, isCurrent))) return;
  const failed = pods.phase.reduce((count, phase) => count + (phase === 3 ? 1 : 0), 0);
  setText(at("timeline-count"), `${plural(pods.count, "pod")} \u00b7 ${plain(timeline.lanes)} at once at most \u00b7 ${clock(timeline.from * 1000)}\u2013${clock(timeline.to * 1000)}`);
  setAttribute(at("timeline"), "aria-label", `Timeline of ${plural(pods.count, "pod")}, of which ${plain(failed)} failed. The tab Pods has the same as a table.`);
  drawTimeline();
};

const startTimeline = () => {
  const canvas = at("timeline");
  drawTimeline = drawing(canvas, timelineHeight, paintTimeline);
  const podAt = (event) => {
    const { pods, order, lane, from, to, now } = timeline;
    if (pods === null) return -1;
    const row = Math.floor(event.offsetY / laneHeight());
    const time = from + (event.offsetX / canvas.clientWidth) * (to - from);
    const slack = ((to - from) / canvas.clientWidth) * 2;
    return order.find((pod) => lane[pod] === row && (pods.started[pod] ?? pods.created[pod]) - slack <= time && time <= (pods.ended[pod] ?? now) + slack) ?? -1;
  };
  canvas.addEventListener("pointermove", (event) => {
    timeline.shown = podAt(event);
    if (timeline.shown < 0) return;
    const { pods, shown, now } = timeline;
    const ran = (pods.ended[shown] ?? now) - (pods.started[shown] ?? pods.created[shown]);
    setText(at("timeline-text"), `${podText(pods, shown)} \u00b7 ${span(ran)}`);
  });
  canvas.addEventListener("click", () => { if (timeline.shown >= 0) openPod(timeline.pods.name[timeline.shown]); });
};
