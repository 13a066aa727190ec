// The address: filters, the opened Job and its tab stand behind the #, so that an address can be sent to others.
// That part is never sent to a server, and is in no log. The token is taken out of it at once.
const address = { search: "", phase: "", offset: 0, job: "", tab: "", pod: "" };
const STORED = "yardmaster-token";
let token = "";

const stored = {
  get: () => { try { return sessionStorage.getItem(STORED) || ""; } catch { return ""; } },
  set: (text) => { try { sessionStorage.setItem(STORED, text); } catch { /* The token is asked for again. */ } },
};
const setToken = (text) => { token = text; stored.set(text); };

/** The part behind the # for an address with these changes. */
const addressWith = (changes) => {
  const parts = Object.entries({ ...address, ...changes }).filter(([, value]) => value);
  // Slashes stay legible.
  const text = parts.map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%2F", "/")}`).join("&");
  return text === "" ? "#" : `#${text}`;
};
const readAddress = () => {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(address)) address[name] = given.get(name) || "";
  address.offset = Math.max(0, Math.floor(Number(address.offset)) || 0);
  const given_token = given.get("token");
  if (given_token) {
    setToken(given_token);
    window.history.replaceState(null, "", addressWith({}));
  } else if (token === "") {
    token = stored.get();
  }
};
/** Changes the address; `back` says whether the button Back returns to the one before. */
const go = (changes, back) => {
  Object.assign(address, changes);
  const target = addressWith({});
  if (target === (location.hash || "#")) return;
  if (back) window.history.pushState(null, "", target);
  else window.history.replaceState(null, "", target);
};
