// Elements and texts. Names and messages are users' input: they are written as text (textContent) and never parsed.
const at = (id) => document.getElementById(id);
const plain = (count) => count.toLocaleString("en");
const make = (tag, className, ...children) => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
};
// The DOM is touched only where something has changed.
const setText = (element, text) => { if (element.textContent !== text) element.textContent = text; };
const setClass = (element, name) => { if (element.className !== name) element.className = name; };
const setAttribute = (element, name, value) => {
  const text = String(value);
  if (element.getAttribute(name) !== text) element.setAttribute(name, text);
};
const setStyle = (element, name, value) => {
  if (element.style.getPropertyValue(name) !== value) element.style.setProperty(name, value);
};
const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** Brings the children of a list to this number, and calls `update` for each. */
const sync = (parent, items, create, update) => {
  while (parent.childElementCount > items.length) parent.lastElementChild.remove();
  items.forEach((item, index) => {
    let child = parent.children[index];
    if (!child) { child = create(); parent.append(child); }
    update(child, item);
  });
};

const span = (seconds) => {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 100) return `${whole}s`;
  if (whole < 6000) return `${Math.round(whole / 60)}m`;
  if (whole < 172800) return `${Math.round(whole / 3600)}h`;
  return `${Math.round(whole / 86400)}d`;
};
const duration = (ms) => (ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(1)} s`);
const clock = (time) => new Date(time).toLocaleTimeString("en-GB");

const track = (className, ...parts) => make("span", className, ...parts.map((part) => make("i", part)));
