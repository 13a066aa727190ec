// Why pods failed, in the words of `yardmaster status JOB`.
/** A button that copies the text of an element. */
const copyButton = (element) => {
  const button = make("button", "copy", "Copy");
  button.type = "button";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(element.textContent);
      setText(button, "Copied");
    } catch {
      // Only pages over HTTPS or of this host may write to the clipboard.
      getSelection().selectAllChildren(element);
      setText(button, "Press Ctrl+C");
    }
    setTimeout(() => setText(button, "Copy"), 1500);
  });
  return button;
};
const showCommands = (commands) => {
  at("next-section").hidden = commands.length === 0;
  const create = () => {
    const code = make("code");
    const item = make("li", "", code);
    item.append(copyButton(code));
    return item;
  };
  sync(at("next-commands"), commands, create, (item, command) => setText(item.firstChild, command));
};

/** What the replica remembers of failed pods, in the form of the API server's answer. */
const remembered = (seen) => {
  const last = (seen?.last_failures || []).map((one) => ({
    pod: one.pod, index: one.index ?? null, attempt: null, node: one.node ?? null, ended: one.ended, exitCode: one.exit_code ?? null, log: null,
    cause: `${one.exit_code === undefined ? "" : `exit code ${one.exit_code} `}${one.reason === undefined ? "" : `(${one.reason})`}${one.message === undefined ? "" : `: ${one.message}`}`,
  }));
  // Tenants choose reasons and names of nodes, such as `constructor`.
  const [exitCodes, reasons, nodes] = [Object.create(null), Object.create(null), Object.create(null)];
  const failures = { pods: last.length, exitCodes, reasons, nodes, last };
  for (const one of seen?.last_failures || []) {
    const [counts, name] = one.exit_code === undefined ? [failures.reasons, one.reason ?? "Unknown"] : [failures.exitCodes, one.exit_code];
    counts[name] = (counts[name] || 0) + 1;
    if (one.node !== undefined) failures.nodes[one.node] = (failures.nodes[one.node] || 0) + 1;
  }
  return failures;
};
const CODES = {
  126: "cannot be run", 127: "not found", 128: "did not start", 137: "killed, often for memory", 139: "memory fault", 143: "asked to end",
};

const bar = (share, className) => {
  const element = track("track", className);
  setStyle(element.firstChild, "width", `${(100 * share).toFixed(1)}%`);
  element.setAttribute("aria-hidden", "true");
  return element;
};
const showHistogram = (failures) => {
  const causes = [
    ...Object.entries(failures.exitCodes).map(([code, pods]) => [`exit code ${code}`, CODES[code] || "", pods]),
    ...Object.entries(failures.reasons).map(([reason, pods]) => [reason, "", pods]),
  ].sort((one, other) => other[2] - one[2]).slice(0, 8);
  const most = Math.max(1, ...causes.map((cause) => cause[2]));
  const create = () => make("tr", "", make("th"), make("td", "", bar(0, "bad-bar")), make("td", "number"), make("td", "soft"));
  sync(at("causes"), causes, create, (row, [name, hint, pods]) => {
    row.firstChild.scope = "row";
    setText(row.children[0], name);
    setStyle(row.querySelector("i"), "width", `${(100 * pods / most).toFixed(1)}%`);
    setText(row.children[2], `${plain(pods)}\u00d7`);
    setText(row.children[3], hint);
  });
};
const showFailures = (failures, tries, now) => {
  const create = () => {
    const pod = make("button", "link");
    pod.type = "button";
    pod.addEventListener("click", () => openPod(pod.textContent));
    return make("tr", "", make("th", "", pod), make("td", "number"), make("td", "number"), make("td"), make("td", "soft"), make("td"));
  };
  at("failed-pods").hidden = failures.last.length === 0;
  sync(at("failure-rows"), failures.last, create, (row, failed) => {
    const [pod, index, attempt, node, ended, cause] = row.children;
    pod.scope = "row";
    setText(pod.firstChild, failed.pod);
    setText(index, failed.index === null ? "" : String(failed.index));
    setText(attempt, failed.attempt === null ? "" : `${failed.attempt}${tries === null ? "" : `/${tries + 1}`}`);
    setText(node, failed.node || "");
    setText(ended, failed.ended === null ? "" : `${span((now - Date.parse(failed.ended)) / 1000)} ago`);
    setText(cause, failed.cause);
    setAttribute(cause, "title", failed.cause);
  });
  const logs = failures.last.filter((failed) => failed.log && failed.log.length > 0);
  sync(at("failure-logs"), logs, () => make("figure", "", make("figcaption"), make("pre")), (figure, failed) => {
    setText(figure.firstChild, `The log of ${failed.pod} ends with`);
    setText(figure.lastChild, failed.log.join("\n"));
  });
};

const showWhy = (opened, now) => {
  const why = opened.pods.why;
  const failures = why && why.failures.pods > 0 ? why.failures : remembered(opened.seen);
  const count = failures.pods;
  at("why-section").hidden = count === 0;
  const isMemory = !(why && why.failures.pods > 0);
  setText(at("why-count"), isMemory ? `the last ${count} that the replica remembers` : `${plural(count, "failed pod")} read`);
  showHistogram(failures);
  showFailures(failures, opened.whole?.job.backoffLimitPerIndex ?? null, now);
  const [namespace, name] = opened.key.split("/");
  const newest = failures.last[0];
  const own = [`yardmaster status ${opened.key}`, `kubectl get events -n ${namespace} --field-selector involvedObject.name=${name}`];
  if (newest !== undefined) own.unshift(`yardmaster logs ${opened.key} --failed --tail 20`);
  showCommands(why && why.next.length > 0 ? why.next : own);
};
