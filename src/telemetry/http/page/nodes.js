// Nodes with their pods. A node that fails far more of its pods than the others do stands out.
const NODES = 10; // at most
const showNodes = (pods) => {
  const nodes = nodesOf(pods);
  const failed = nodes.reduce((sum, node) => sum + node.failed, 0);
  const all = nodes.reduce((sum, node) => sum + node.pods, 0);
  at("nodes-section").hidden = nodes.length === 0;
  const isBad = (node) => {
    const others = all - node.pods;
    const share = node.failed / node.pods;
    return node.failed >= 3 && nodes.length > 1 && share >= 0.05 && share > 3 * ((failed - node.failed) / Math.max(1, others));
  };
  const bad = nodes.filter(isBad).length;
  setText(at("nodes-count"), bad > 0 ? `${plural(bad, "node")} stand${bad === 1 ? "s" : ""} out` : plural(nodes.length, "node"));
  const most = Math.max(1, ...nodes.map((node) => node.pods));
  const create = () => make("tr", "", make("th", "", make("span", "cut")), make("td", "", track("track", "bad-bar", "good-bar")), make("td", "number"), make("td", "number soft"));
  sync(at("node-rows"), nodes.slice(0, NODES), create, (row, node) => {
    const [name, share, failures, count] = row.children;
    name.scope = "row";
    setClass(row, isBad(node) ? "stands-out" : "");
    setText(name.firstChild, isBad(node) ? `${node.name} \u26a0` : node.name);
    setAttribute(name, "title", isBad(node) ? `${node.name}: far more of its pods fail than elsewhere` : node.name);
    const [bars] = share.children;
    bars.setAttribute("aria-hidden", "true");
    setStyle(bars.children[0], "width", `${(100 * node.failed / most).toFixed(1)}%`);
    setStyle(bars.children[1], "width", `${(100 * (node.pods - node.failed) / most).toFixed(1)}%`);
    setText(failures, plain(node.failed));
    setClass(failures, node.failed === 0 ? "number none" : "number bad");
    setText(count, plain(node.pods));
  });
  setText(at("nodes-more"), nodes.length > NODES ? `and ${plural(nodes.length - NODES, "other node")}` : "");
};
