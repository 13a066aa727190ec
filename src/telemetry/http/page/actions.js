// Actions on the opened Job, where the viewer's rights allow them and the operator has switched them on.
const ACTIONS = {
  suspend: { name: "Suspend", text: "Its active pods are stopped, and no pod is created until it is resumed." },
  resume: { name: "Resume", text: "Its pods are created again." },
  retry: { name: "Retry failed indexes", text: "A Job of one pod is created for each failed index. The Job itself stays as it is." },
  delete: { name: "Delete", text: "The Job and all its pods are deleted, with their logs." },
};
const rights = { key: "", switchedOn: false, actions: [] };

const readRights = async (job, signal) => {
  const key = `${job.namespace}/${job.name}`;
  if (rights.key === key) return;
  Object.assign(rights, { key, switchedOn: false, actions: [] });
  try {
    const answer = await accepted(await request("/debug/job/actions", job, { signal }));
    Object.assign(rights, await answer.json());
  } catch (error) {
    // Without an answer there are no actions, and everything else is shown.
    if (error.name === "AbortError") { rights.key = ""; throw error; }
  }
};
/** The actions that make sense now. */
const sensible = (whole) => {
  if (!rights.switchedOn || whole === null) return [];
  const isFinished = ["Complete", "Failed"].includes(whole.job.state);
  const actions = whole.deleting ? [] : ["delete"];
  if (isFinished && whole.job.failedIndexes) actions.unshift("retry");
  if (!isFinished) actions.unshift(whole.suspend ? "resume" : "suspend");
  return actions;
};
const showActions = (whole) => {
  const create = () => {
    const button = make("button");
    button.type = "button";
    button.addEventListener("click", () => askBefore(button.value));
    return button;
  };
  sync(at("job-actions"), sensible(whole), create, (button, action) => {
    const isAllowed = rights.actions.includes(action);
    button.value = action;
    button.disabled = !isAllowed;
    setClass(button, action === "delete" ? "danger" : "");
    setText(button, ACTIONS[action].name);
    setAttribute(button, "title", isAllowed ? ACTIONS[action].text : "You have no right to do this: kubectl auth can-i says more.");
  });
};
const askBefore = (action) => {
  setText(at("confirm-title"), `${ACTIONS[action].name}: ${opened.key}`);
  setText(at("confirm-text"), ACTIONS[action].text);
  setText(at("confirm-problem"), "");
  setText(at("confirm-yes"), ACTIONS[action].name);
  setClass(at("confirm-yes"), action === "delete" ? "danger" : "primary");
  at("confirm").action = action;
  at("confirm").uid = opened.whole.job.uid;
  at("confirm").showModal();
};
const act = async () => {
  const dialog = at("confirm");
  const [namespace, name] = opened.key.split("/");
  at("confirm-yes").disabled = true;
  try {
    const answer = await accepted(await request("/debug/job/act", { namespace, name }, {
      method: "POST",
      headers: { "Content-Type": "application/json", "Yardmaster-Page": "1" },
      body: JSON.stringify({ uid: dialog.uid, action: dialog.action }),
    }));
    const { done, jobs } = await answer.json();
    setText(at("announcements"), `${opened.key}: ${jobs ? `${plural(jobs.length, "Job")} ${done}` : done}`);
    dialog.close();
    if (dialog.action === "delete") closeJob();
    else askJob();
  } catch (error) {
    setText(at("confirm-problem"), error.message);
  } finally {
    at("confirm-yes").disabled = false;
  }
};
const startActions = () => {
  at("confirm-yes").addEventListener("click", act);
  at("confirm-no").addEventListener("click", () => at("confirm").close());
};
