// What charts and ledgers are drawn with: elements, the looks of a series, numbers, round ticks.

const SVG = "http://www.w3.org/2000/svg";
const OURS = /^pdlrecover/i;
/** What points look like: a circle, then polygons around 0 of its size. */
const SHAPES = [
  null,
  [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]],
  [[0, -1.25], [1.2, 0.9], [-1.2, 0.9]],
  [[0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]],
  [[0, 1.25], [1.2, -0.9], [-1.2, -0.9]],
  [[0, -0.5], [0.7, -1.2], [1.2, -0.7], [0.5, 0], [1.2, 0.7], [0.7, 1.2],
    [0, 0.5], [-0.7, 1.2], [-1.2, 0.7], [-0.5, 0], [-1.2, -0.7], [-0.7, -1.2]],
];

/** Makes an element of an SVG, and puts it into its parent. */
function draw(parent, name, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  parent.append(made);
  return made;
}

/** Makes an HTML element, and puts it into its parent. */
function add(parent, name, attributes = {}, text = null) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  parent.append(made);
  return made;
}

/** How the series of a figure look, by their names: the rules are those of palette.py. */
function looksOf(names) {
  const { known, places, hues, dashes } = PALETTE;
  const taken = new Map();
  const spot = (name) => (Object.hasOwn(known, name) ? name : places.indexOf(name));
  const whole = (name) => name.toLowerCase();
  const made = (name) => [...taken.values()].includes(name);
  for (const base of [whole, (name) => whole(name).split(":")[0]]) {
    for (const name of names) {
      const place = spot(base(name));
      if (!made(name) && place !== -1 && !taken.has(place)) taken.set(place, name);
    }
  }
  let free = 0;
  for (const name of names) {
    if (made(name)) continue;
    while (taken.has(free)) free++;
    taken.set(free, name);
  }
  const look = (place) => {
    if (known[place]) return { colour: `var(--${known[place].colour})`, dash: known[place].dash, shape: 0 };
    const turn = (place % hues.length) + Math.floor(place / hues.length);
    const colour = `var(--series-${place % hues.length})`;
    return { colour, dash: dashes[turn % dashes.length], shape: turn % SHAPES.length };
  };
  return new Map([...taken].map(([place, name]) => [name, { ...look(place), ours: OURS.test(name) }]));
}

/** A point of a series, in the shape that tells it from others of its colour. */
function point(parent, kind, { look, x, y, size }) {
  const corners = SHAPES[look.shape];
  if (!corners) return draw(parent, "circle", { class: kind, cx: x, cy: y, r: size });
  const points = corners.map(([a, b]) => `${(x + a * size).toFixed(1)},${(y + b * size).toFixed(1)}`);
  return draw(parent, "polygon", { class: kind, points: points.join(" ") });
}

/** Whether a series is shown as points: it is meant to be, or has a single value. */
function dotted({ points, y }) {
  return points || y.filter((value) => value !== null).length === 1;
}

/** A short piece of a series' line, or a point of it, for legends and tips. */
function swatch(parent, series) {
  const { look } = series;
  const svg = draw(parent, "svg", { viewBox: "0 0 22 10", "aria-hidden": "true" });
  if (dotted(series)) point(svg, "point", { look, x: 11, y: 5, size: 4 });
  else draw(svg, "line", { class: look.ours ? "line ours" : "line", x1: 1, x2: 21, y1: 5, y2: 5, "stroke-dasharray": look.dash.join(" ") });
  svg.style.setProperty("--c", look.colour);
}

/** A number as people write it; powers of ten for the very large and the very small. */
function shown(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) {
    const power = Math.floor(Math.log10(size) + 1e-12);
    const raised = String(power).replace(/./g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
    const factor = Number((value / 10 ** power).toPrecision(3));
    return factor === 1 ? `10${raised}` : `${factor}·10${raised}`;
  }
  return Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 6 });
}

/** Round numbers from low to high, about so many. */
function ticks(low, high, wanted) {
  const raw = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= raw * 0.75);
  const made = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) {
    made.push(Number((k * step).toPrecision(12)));
  }
  return made;
}
