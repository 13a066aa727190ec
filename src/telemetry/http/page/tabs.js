// The tabs below: pods, log, Events, conditions and YAML.
const TABS = ["pods", "log", "events", "conditions", "yaml"];
const texts = { events: 0, yaml: 0 }; // when each was read

const showConditions = (whole) => {
  const create = () => make("tr", "", make("th"), make("td"), make("td"), make("td", "soft"), make("td"));
  sync(at("condition-rows"), whole?.job.conditions || [], create, (row, condition) => {
    const [kind, status, reason, since, message] = row.children;
    kind.scope = "row";
    setText(kind, condition.type);
    setText(status, condition.status);
    setText(reason, condition.reason || "");
    setText(since, condition.lastTransitionTime ? new Date(condition.lastTransitionTime).toLocaleString("en-GB") : "");
    setText(message, condition.message || "");
  });
  at("conditions-none").hidden = (whole?.job.conditions || []).length > 0;
};
const showEvents = (events, now) => {
  const create = () => make("tr", "", make("td", "soft"), make("td"), make("th"), make("td"), make("td", "number soft"));
  sync(at("event-rows"), events, create, (row, event) => {
    const [seen, kind, reason, message, count] = row.children;
    setText(seen, event.at ? `${span((now - Date.parse(event.at)) / 1000)} ago` : "");
    setText(kind, event.type || "");
    setClass(kind, event.type === "Warning" ? "warning" : "");
    reason.scope = "row";
    setText(reason, event.reason || "");
    setText(message, event.message || "");
    setText(count, event.count > 1 ? `${plain(event.count)}\u00d7` : "");
  });
  setText(at("events-none"), events.length === 0 ? "No Events: the API server keeps them for an hour." : "");
};
/** Reads what the tab in view shows, if it is old. */
const readTab = async (job, signal) => {
  const tab = address.tab;
  if (!(tab in texts) || Date.now() - texts[tab] < 5000) return;
  texts[tab] = Date.now();
  try {
    const answer = await accepted(await request(`/debug/job/${tab}`, job, { signal }));
    if (tab === "events") showEvents(await answer.json(), Date.now());
    else setText(at("yaml-text"), await answer.text());
  } catch (error) {
    if (error.name === "AbortError") { texts[tab] = 0; return; }
    setText(at(tab === "events" ? "events-none" : "yaml-text"), error.message);
  }
};
const showTab = () => {
  if (!TABS.includes(address.tab)) address.tab = TABS[0];
  for (const name of TABS) {
    const isChosen = name === address.tab;
    setAttribute(at(`tab-${name}`), "aria-selected", isChosen);
    at(`tab-${name}`).tabIndex = isChosen ? 0 : -1;
    at(`panel-${name}`).hidden = !isChosen;
  }
  if (address.tab === "pods") drawRows();
  if (address.tab === "log") askLog();
};
const startTabs = () => {
  at("tabs").addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (!tab) return;
    go({ tab: tab.dataset.tab });
    showTab();
    askJob();
  });
  at("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    const name = TABS[(TABS.indexOf(address.tab) + step + TABS.length) % TABS.length];
    at(`tab-${name}`).click();
    at(`tab-${name}`).focus();
  });
};
