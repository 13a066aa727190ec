// The address: filters, the opened Job and its tab stand behind the #, so that an address can be sent to others.
// That part is never sent to a server, and is in no log. The token is taken out of it at once.
const address = { search: "", phase: "", offset: 0, job: "", tab: "", pod: "" };
const STORED = { page: "yardmaster-token", viewer: "yardmaster-viewer-token" };
// The token that the page itself asks for, and the one of the cluster that a viewer pastes into an opened Job.
const tokens = { page: "", viewer: "" };

const stored = {
  get: (kind) => { try { return sessionStorage.getItem(STORED[kind]) || ""; } catch { return ""; } },
  set: (kind, text) => { try { sessionStorage.setItem(STORED[kind], text); } catch { /* The token is asked for again. */ } },
};
const setToken = (kind, text) => {
  tokens[kind] = text;
  stored.set(kind, text);
  // With another token of the page, another viewer may have come.
  if (kind === "page") setToken("viewer", "");
};
/** The token for a path. That of a viewer goes where the API server answers, and nowhere else. */
const tokenFor = (path) => (path.startsWith("/debug/job") && tokens.viewer ? tokens.viewer : tokens.page);

/** The part behind the # for an address with these changes. */
const addressWith = (changes) => {
  const parts = Object.entries({ ...address, ...changes }).filter(([, value]) => value);
  // Slashes stay legible.
  const text = parts.map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%2F", "/")}`).join("&");
  return text === "" ? "#" : `#${text}`;
};
// An address comes from others, and the names in it become parts of commands to copy. These are the characters of names.
const NAME = "[a-z0-9][a-z0-9.-]*";
const FORMS = { job: new RegExp(`^${NAME}/${NAME}$`), pod: new RegExp(`^${NAME}$`) };
const readAddress = () => {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(address)) {
    const text = given.get(name) || "";
    address[name] = FORMS[name]?.test(text) === false ? "" : text;
  }
  address.offset = Math.max(0, Math.floor(Number(address.offset)) || 0);
  const given_token = given.get("token");
  if (given_token) {
    setToken("page", given_token);
    window.history.replaceState(null, "", addressWith({}));
  }
  for (const kind of Object.keys(tokens)) tokens[kind] = tokens[kind] || stored.get(kind);
};
/** Changes the address; `back` says whether the button Back returns to the one before. */
const go = (changes, back) => {
  Object.assign(address, changes);
  const target = addressWith({});
  if (target === (location.hash || "#")) return;
  if (back) window.history.pushState(null, "", target);
  else window.history.replaceState(null, "", target);
};
