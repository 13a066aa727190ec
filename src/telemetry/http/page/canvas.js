// Canvases that follow the theme and the size of the window.
const canvases = [];
/** Draws on a canvas whenever its size or the theme has changed, and when `draw` is called. */
const drawing = (canvas, height, paint) => {
  const draw = () => {
    if (!canvas.checkVisibility()) return;
    const ratio = devicePixelRatio || 1;
    const width = canvas.parentElement.clientWidth;
    const tall = height(width);
    // A canvas is cleared by its size alone.
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(tall * ratio);
    canvas.style.setProperty("height", `${tall}px`);
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    paint(context, width, tall, (name) => style.getPropertyValue(`--${name}`).trim());
  };
  new ResizeObserver(draw).observe(canvas.parentElement);
  canvases.push(draw);
  return draw;
};
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => canvases.forEach((draw) => draw()));
const STATE_COLORS = { todo: "track", succeeded: "good-fill", running: "busy-fill", retried: "warn-fill", failed: "bad-fill" };
