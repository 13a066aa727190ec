// Questions to this server.
const PATIENCE = 5000; // ms to wait for an answer

/** Asks for a path; `signal` gives up. Without one, the question waits for some time only. */
const request = async (path, parameters, { signal, ...options } = {}) => {
  const token = tokenFor(path);
  const headers = { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...options.headers };
  const query = new URLSearchParams(parameters);
  try {
    return await fetch(`${path}?${query}`, { ...options, headers, signal: signal || AbortSignal.timeout(4 * PATIENCE) });
  } catch (error) {
    // A port-forward may have ended. Another user of the machine may have the port next, and must not get the viewer's token.
    if (error.name !== "AbortError") setToken("viewer", "");
    throw error;
  }
};

/** An answer that is none, with its code. */
class Refused extends Error {
  constructor(code, text) { super(text || `the server answers ${code}`); this.code = code; }
}
const accepted = async (answer) => {
  if (answer.ok) return answer;
  throw new Refused(answer.status, (await answer.text()).trim().slice(0, 500));
};

/** The lines of an answer as they come, each parsed by itself: no line is long. */
async function* linesOf(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let open = "";
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    open += piece.value;
    for (let end = open.indexOf("\n"); end >= 0; end = open.indexOf("\n")) {
      yield JSON.parse(open.slice(0, end));
      open = open.slice(end + 1);
    }
  }
}

/** Waits for the next turn of the page's thread. Timers would wait longer. */
const turn = () => new Promise((resolve) => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => { port1.close(); resolve(); };
  port2.postMessage(0);
});

/** Lets the browser draw and answer keys, once this turn has lasted some time. */
const breather = () => {
  let since = performance.now();
  return async () => {
    if (performance.now() - since < 12) return;
    await turn();
    since = performance.now();
  };
};
