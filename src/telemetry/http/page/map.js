// The map of indexes: a square for each index, or for each block of indexes, of which the worst counts.
const SQUARES = 12_000; // at most
const ORDERS = ["by index", "by state", "by node", "by end"];
const map = { indexes: null, pods: null, order: null, orderName: ORDERS[0], block: 1, cell: 8, columns: 1, cursor: 0 };

/** The smallest of 1, 2, 5, 10 and so on that leaves few enough squares. */
const blockSize = (count) => {
  for (let power = 1; ; power *= 10) for (const part of [1, 2, 5]) if (count / (power * part) <= SQUARES) return power * part;
};
const squares = () => Math.ceil(map.indexes.count / map.block);
const indexAt = (place) => (map.order === null ? place : map.order[place]);
const worstOf = (square) => {
  let worst = 0, done = 0;
  const [from, to] = [square * map.block, Math.min((square + 1) * map.block, map.indexes.count)];
  for (let place = from; place < to; place += 1) {
    const state = map.indexes.states[indexAt(place)];
    if (state === 1) done += 1;
    else if (state > worst) worst = state;
  }
  return worst === 0 && done === to - from ? 1 : worst;
};
const reorder = () => {
  const { indexes, pods } = map;
  if (map.orderName === ORDERS[0] || indexes.count > 200_000) { map.order = null; return; }
  const key = {
    "by state": (index) => 9 - indexes.states[index],
    "by node": (index) => { const pod = indexes.newest[index]; return pod < 0 || pods.node[pod] === null ? 1e6 : pods.node[pod]; },
    "by end": (index) => { const pod = indexes.newest[index]; return pod < 0 || pods.ended[pod] === null ? 4e9 : pods.ended[pod]; },
  }[map.orderName];
  // Numbers sort quickly where no function compares them: the index is in the low part of each.
  const keys = Float64Array.from({ length: indexes.count }, (_, index) => key(index) * 262_144 + index).sort();
  map.order = Uint32Array.from(keys, (value) => value % 262_144);
};

const mapHeight = (width) => {
  if (map.indexes === null) return 0;
  const count = squares();
  // As large as 290 rows of pixels allow.
  let cell = 18;
  while (cell > 3 && Math.ceil(count / Math.floor(width / cell)) * cell > 290) cell -= 1;
  map.cell = cell;
  map.columns = Math.max(1, Math.floor(width / cell));
  return Math.max(cell, Math.ceil(count / map.columns) * cell) + 2;
};
const paintMap = (context, width, height, color) => {
  if (map.indexes === null) return;
  const { cell, columns } = map;
  const gap = cell > 9 ? 2 : 1;
  const places = STATES.map(() => []);
  for (let square = 0; square < squares(); square += 1) places[worstOf(square)].push(square);
  const corner = (square) => [(square % columns) * cell + 1, Math.floor(square / columns) * cell + 1];
  STATES.forEach((state, number) => {
    context.fillStyle = color(STATE_COLORS[state]);
    context.beginPath();
    // One bad square in many must be seen.
    const more = state === "failed" && cell < 7 ? 1 : 0;
    for (const square of places[number]) {
      const [x, y] = corner(square);
      context.rect(x - more, y - more, cell - gap + 2 * more, cell - gap + 2 * more);
    }
    context.fill();
  });
  marks(context, places, corner, cell - gap, color);
  const [x, y] = corner(map.cursor);
  if (document.activeElement === at("map")) {
    context.strokeStyle = color("ink");
    context.lineWidth = 2;
    context.strokeRect(x - 1.5, y - 1.5, cell - gap + 3, cell - gap + 3);
  }
};
/** Shapes beside the colours, where there is room. */
const marks = (context, places, corner, size, color) => {
  if (size < 5) return;
  context.strokeStyle = color("panel");
  context.fillStyle = color("panel");
  context.lineWidth = size > 9 ? 2 : 1.2;
  context.beginPath();
  const inset = size * 0.26;
  for (const square of places[STATES.indexOf("failed")]) {
    const [x, y] = corner(square);
    context.moveTo(x + inset, y + inset);
    context.lineTo(x + size - inset, y + size - inset);
    context.moveTo(x + size - inset, y + inset);
    context.lineTo(x + inset, y + size - inset);
  }
  context.stroke();
  context.beginPath();
  for (const square of places[STATES.indexOf("retried")]) {
    const [x, y] = corner(square);
    context.rect(x + size / 2 - size * 0.14, y + size * 0.2, size * 0.28, size * 0.6);
  }
  for (const square of places[STATES.indexOf("running")]) {
    const [x, y] = corner(square);
    context.moveTo(x + size * 0.32, y + size * 0.22);
    context.lineTo(x + size * 0.8, y + size * 0.5);
    context.lineTo(x + size * 0.32, y + size * 0.78);
  }
  context.fill();
};

/** What is said of the square under the cursor. */
const squareText = () => {
  const { indexes, pods, block, cursor } = map;
  if (block > 1) {
    const last = Math.min((cursor + 1) * block, indexes.count) - 1;
    return `Indexes ${plain(cursor * block)}\u2013${plain(last)}: the worst is ${STATE_NAMES[STATES[worstOf(cursor)]]}`;
  }
  const index = indexAt(cursor);
  const pod = indexes.newest[index];
  const text = `Index ${plain(index)}: ${STATE_NAMES[STATES[indexes.states[index]]]}`;
  return pod < 0 ? text : `${text} \u00b7 ${podText(pods, pod)}`;
};
const moveTo = (square) => {
  map.cursor = Math.min(Math.max(square, 0), squares() - 1);
  const canvas = at("map");
  setAttribute(canvas, "aria-valuenow", map.cursor);
  setAttribute(canvas, "aria-valuetext", squareText());
  setText(at("map-text"), squareText());
  drawMap();
};
/** Goes to the next square in the worst state that there is, or back to the one before. */
const moveToBad = (step) => {
  const bad = Math.max(...map.indexes.counts.map((count, state) => (count > 0 && state >= 3 ? state : 0)));
  if (bad === 0) return;
  const count = squares();
  for (let tried = 1; tried <= count; tried += 1) {
    const square = (map.cursor + step * tried + count * 2) % count;
    if (worstOf(square) === bad) return moveTo(square);
  }
};
let drawMap = () => {};

const showMap = (indexes, pods) => {
  at("map-section").hidden = indexes === null;
  map.indexes = indexes;
  map.pods = pods;
  if (indexes === null) return;
  map.block = blockSize(indexes.count);
  if (map.block > 1) map.orderName = ORDERS[0];
  at("map-order").disabled = map.block > 1;
  map.cursor = Math.min(map.cursor, squares() - 1);
  reorder();
  setText(at("map-count"), map.block === 1
    ? `${plain(indexes.count)} \u00b7 a square each` : `${plain(indexes.count)} \u00b7 ${plain(map.block)} in a square, the worst counts`);
  const present = STATES.map((state, number) => [state, indexes.counts[number]]).filter(([, count]) => count > 0).reverse();
  sync(at("map-legend"), present, () => make("li", "", make("i"), make("b"), make("span")), (item, [state, count]) => {
    setClass(item.children[0], `key ${state}`);
    setText(item.children[1], plain(count));
    setText(item.children[2], STATE_NAMES[state]);
  });
  at("map-next").hidden = indexes.counts[3] + indexes.counts[4] === 0;
  const canvas = at("map");
  setAttribute(canvas, "aria-valuemax", squares() - 1);
  setAttribute(canvas, "aria-label", `Map of indexes: ${present.map(([state, count]) => `${plain(count)} ${STATE_NAMES[state]}`).join(", ")}`);
  setAttribute(canvas, "aria-valuetext", squareText());
  if (document.activeElement !== canvas) setText(at("map-text"), "Point at a square, or go through the failed ones with n and p. A click opens the log.");
  drawMap();
};

const startMap = () => {
  const canvas = at("map");
  drawMap = drawing(canvas, mapHeight, paintMap);
  for (const name of ORDERS) at("map-order").append(make("option", "", name));
  at("map-order").addEventListener("change", (event) => { map.orderName = event.target.value; reorder(); moveTo(0); });
  const squareAt = (event) => {
    const column = Math.floor((event.offsetX - 1) / map.cell), row = Math.floor((event.offsetY - 1) / map.cell);
    const square = row * map.columns + column;
    return column >= 0 && column < map.columns && row >= 0 && square < squares() ? square : null;
  };
  canvas.addEventListener("pointermove", (event) => {
    const square = squareAt(event);
    if (square !== null && square !== map.cursor) moveTo(square);
  });
  const openLog = () => {
    const pod = map.block === 1 ? map.indexes.newest[indexAt(map.cursor)] : -1;
    if (pod >= 0) openPod(map.pods.name[pod]);
  };
  canvas.addEventListener("click", openLog);
  canvas.addEventListener("focus", () => drawMap());
  canvas.addEventListener("blur", () => drawMap());
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -map.columns, ArrowDown: map.columns, Home: -Infinity, End: Infinity };
    if (event.key in steps) moveTo(map.cursor + steps[event.key]);
    else if (event.key === "n") moveToBad(1);
    else if (event.key === "p") moveToBad(-1);
    else if (event.key === "Enter") openLog();
    else return;
    event.preventDefault();
  });
  at("map-next").addEventListener("click", () => moveToBad(1));
};
