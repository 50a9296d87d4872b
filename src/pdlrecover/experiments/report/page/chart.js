// Charts: Vega draws a figure's specification once it comes near the window; what is here switches
// its series and its scale, and reads its values.

const CHARTS = JSON.parse(document.getElementById("charts").textContent);
/** Expressions are interpreted: the page's policy lets nobody make code out of text. */
const EMBED = {
  config: { ...CHARTS.config, font: getComputedStyle(document.body).fontFamily },
  ...{ mode: "vega-lite", renderer: "svg", ast: true, logLevel: 1 },
  ...{ actions: false, tooltip: false, defaultStyle: false },
};
/** How far from the window a figure is drawn already. */
const NEAR = "600px";

/** Makes an HTML element, and puts it into its parent. */
function add(parent, name, attributes = {}, text = null) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  parent.append(made);
  return made;
}

/** A short piece of a series' line, or a point of it, for the legend and for reading. */
function swatch(parent, { colour, strokeDash, shape, dotted }) {
  const [svg, path] = ["svg", "path"].map((name) => document.createElementNS("http://www.w3.org/2000/svg", name));
  const point = { d: shape, fill: colour, transform: "translate(11 5) scale(4)" };
  const line = { d: "M1,5H21", stroke: colour, "stroke-dasharray": strokeDash.join(" ") };
  for (const [key, value] of Object.entries(dotted ? point : line)) path.setAttribute(key, value);
  svg.setAttribute("viewBox", "0 0 22 10");
  svg.setAttribute("aria-hidden", "true");
  svg.append(path);
  parent.append(svg);
}

/** A number as people write it; powers of ten for the very large and the very small. */
function shown(value) {
  const size = Math.abs(value);
  if (size === 0 || (size >= 1e-3 && size < 1e7)) {
    return Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 6 });
  }
  const [factor, power] = value.toExponential(2).split("e").map(Number);
  const raised = String(power).replace(/./g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
  return factor === 1 ? `10${raised}` : `${factor}·10${raised}`;
}

/** Draws a figure into its holder when it comes near, with the buttons and the reading of values. */
function chart(holder, spec) {
  const canvas = holder.querySelector(".canvas");
  const hidden = new Set();
  let [view, wanted] = [null, false];

  /** Draws it from the start; what was drawn before goes. */
  async function draw() {
    wanted = true;
    const scaled = structuredClone({ ...spec, layer: CHARTS.layers[spec.layer] });
    if (scale && pressed(scale)) {
      scaled.encoding.x.scale = { type: "log", nice: false, padding: spec.encoding.x.scale.padding };
      scaled.transform.push({ filter: "datum.x > 0" });
    }
    view?.finalize();
    ({ view } = await vegaEmbed(canvas, scaled, EMBED));
    view.signal("hidden", [...hidden]).run();
  }
  function show(names) {
    hidden.clear();
    names.forEach((name) => hidden.add(name));
    view?.signal("hidden", names).run();
  }
  const pressed = (button) => button.getAttribute("aria-pressed") === "true";
  const press = (button) => button.setAttribute("aria-pressed", String(!pressed(button)));
  holder.querySelector(".legend").replaceChildren();
  const legend = [...spec.data.values].sort((a, b) => a.place - b.place).map((series) => {
    const button = add(holder.querySelector(".legend"), "button", { type: "button", "aria-pressed": "true", class: series.ours ? "ours" : "" });
    swatch(button, series);
    add(button, "span", {}, series.name);
    return button;
  });
  const off = () => legend.filter((button) => !pressed(button)).map((button) => button.textContent);
  legend.forEach((button) => button.addEventListener("click", () => (press(button), show(off()))));
  const scale = holder.querySelector(".scales button");
  scale?.addEventListener("click", () => (press(scale), draw()));
  addEventListener("beforeprint", () => {
    show([]);
    if (!wanted && !canvas.querySelector(".still")) draw();
  });
  addEventListener("afterprint", () => show(off()));
  new IntersectionObserver((entries, observer) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    if (!wanted) draw();
  }, { rootMargin: NEAR }).observe(holder);
  reader(holder.querySelector(".plot"), spec, hidden, () => view);
}

/** Reads the values at the place that the pointer or the arrow keys choose. */
function reader(plot, spec, hidden, viewNow) {
  const [canvas, tip] = [plot.querySelector(".canvas"), plot.querySelector(".tip")];
  let chosen = -1;

  /** The places that can be read, from left to right, each with where it is in the window. */
  function places() {
    const view = viewNow();
    if (!view) return [];
    const [at, [start]] = [view.scale("x"), view.origin()];
    const all = new Set(spec.data.values.filter(({ name }) => !hidden.has(name)).flatMap(({ x }) => x));
    return [...all].sort((a, b) => a - b).map((x) => ({ x, left: start + at(x) })).filter(({ left }) => Number.isFinite(left));
  }
  function clear() {
    tip.replaceChildren();
    viewNow()?.signal("place", null).run();
  }
  function read(all, index) {
    if (!all.length) return;
    chosen = Math.max(0, Math.min(all.length - 1, index));
    const { x: place, left } = all[chosen];
    viewNow().signal("place", place).run();
    tip.replaceChildren();
    add(tip, "div", {}, `${spec.encoding.x.title} ${shown(place)}`);
    const body = add(add(tip, "table"), "tbody");
    const rows = spec.data.values
      .filter(({ name }) => !hidden.has(name))
      .flatMap((series) => series.x.map((x, i) => ({ series, x, y: series.y[i], half: series.spread[i], label: series.labels[i] })))
      .filter(({ x, y }) => x === place && y !== null)
      .sort((a, b) => b.y - a.y);
    for (const { series, y, half, label } of rows) {
      const row = add(body, "tr", { class: series.ours ? "ours" : "" });
      const head = add(row, "th", { scope: "row" });
      swatch(head, series);
      head.append(series.name);
      add(row, "td", {}, shown(y) + (half ? ` ± ${shown(half)}` : ""));
      if (label && label !== series.name) add(add(body, "tr", { class: "label" }), "td", { colspan: 2 }, label);
    }
    const beside = left + 14 + tip.offsetWidth > plot.clientWidth ? left - 14 - tip.offsetWidth : left + 14;
    tip.style.left = `${Math.max(0, Math.min(beside, plot.clientWidth - tip.offsetWidth))}px`;
  }
  function nearest(event) {
    const [all, x] = [places(), event.clientX - canvas.getBoundingClientRect().left];
    const away = all.map(({ left }) => Math.abs(left - x));
    read(all, away.indexOf(Math.min(...away)));
  }
  canvas.addEventListener("pointermove", nearest);
  canvas.addEventListener("pointerdown", nearest);
  canvas.addEventListener("pointerleave", clear);
  canvas.addEventListener("blur", clear);
  canvas.addEventListener("keydown", (event) => {
    const all = places();
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -all.length, End: all.length }[event.key];
    if (step) read(all, chosen + step);
    else if (event.key === "Escape") clear();
    else return;
    event.preventDefault();
  });
}
