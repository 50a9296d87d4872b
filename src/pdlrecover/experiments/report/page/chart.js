// Curves as SVG. A chart is drawn anew whenever its width or its visible series change.

/** The vertical scale: its ends, its ticks, and where a value is between 0 and 1. */
function scaleOf(figure, series) {
  const all = [];
  for (const { y, spread } of series) {
    y.forEach((value, i) => {
      if (value === null || (figure.log && value <= 0)) return;
      const half = (spread && spread[i]) || 0;
      all.push(value + half, figure.log && value - half <= 0 ? value : value - half);
    });
  }
  let low = Math.min(...all);
  let high = Math.max(...all);
  if (!all.length) [low, high] = figure.log ? [1, 10] : [0, 1];
  if (figure.log) {
    const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high) + 1e-9)];
    const every = Math.ceil((to - from) / 6) || 1;
    const marks = [];
    for (let power = from; power <= to; power += every) marks.push(Number(`1e${power}`));
    const at = (value) => (value > 0 ? (Math.log10(value) - from) / (to - from || 1) : NaN);
    return { marks, at };
  }
  if (high === low) [low, high] = [low - 0.5, high + 0.5];
  const step = ticks(low, high, 5);
  const gap = step.length > 1 ? step[1] - step[0] : high - low;
  [low, high] = [Math.floor(low / gap + 1e-9) * gap, Math.ceil(high / gap - 1e-9) * gap];
  if (figure.y.includes("%")) {
    const means = series.flatMap(({ y }) => y.filter((value) => value !== null));
    [low, high] = [Math.max(low, Math.min(0, ...means)), Math.min(high, Math.max(100, ...means))];
  }
  return { marks: ticks(low, high, 5), at: (value) => (value - low) / (high - low) };
}

/** The horizontal scale: where a value is between 0 and 1, its last value, and about so many ticks. */
function linearScale(xs) {
  const [first, last] = xs.length ? [Math.min(...xs), Math.max(...xs)] : [0, 1];
  return { last, at: (x) => (x - first) / (last - first || 1), marks: (wanted) => ticks(first, last, wanted) };
}

/** The same with a logarithm: what is not positive is left out, and ticks are powers of ten. */
function logScale(xs) {
  const { last, at, marks } = linearScale(xs.filter((x) => x > 0).map(Math.log10));
  const whole = (wanted) => marks(wanted).filter(Number.isInteger).map((power) => Number(`1e${power}`));
  return { last: 10 ** last, at: (x) => (x > 0 ? at(Math.log10(x)) : NaN), marks: whole };
}

/** Whether a logarithm may help: lines by round, where some end long before others. */
function byRound({ x, series }) {
  return /\bround\b/.test(x) && series.some((each) => !each.points);
}

/** Points that follow each other without a gap, as lists of [x, y, half a spread]. */
function runsOf({ x, y, spread }, at, left) {
  const runs = [[]];
  x.forEach((value, i) => {
    if (y[i] === null || Number.isNaN(at(y[i])) || Number.isNaN(left(value))) runs.push([]);
    else runs[runs.length - 1].push([value, y[i], (spread && spread[i]) || 0]);
  });
  return runs.filter((run) => run.length);
}

/** Draws one series: its band, its line or points, and a dot where it ends. */
function drawSeries(svg, series, { left, top, at, clip }) {
  const { look } = series;
  const group = draw(svg, "g", { class: "series", "data-series": series.name });
  group.style.setProperty("--c", look.colour);
  const path = (points) => points.map(([x, y]) => `${left(x).toFixed(1)},${top(y).toFixed(1)}`).join("L");
  for (const run of runsOf(series, at, left)) {
    if (run.some(([, , half]) => half)) {
      const above = run.map(([x, y, half]) => [x, y + half]);
      const below = run.map(([x, y, half]) => [x, Number.isNaN(at(y - half)) ? y : y - half]);
      const band = { class: "band", d: `M${path(above)}L${path(below.reverse())}Z` };
      draw(group, "path", { ...band, "clip-path": `url(#${clip})` });
    }
    if (!series.points && run.length > 1) {
      const line = { class: look.ours ? "line ours" : "line", d: `M${path(run)}`, "stroke-dasharray": look.dash.join(" ") };
      draw(group, "path", line);
    }
    if (dotted(series)) {
      for (const [x, y] of run) point(group, "point", { look, x: left(x), y: top(y), size: 4 });
    } else {
      const [x, y] = run[run.length - 1];
      draw(group, "circle", { class: "point", cx: left(x), cy: top(y), r: look.ours ? 4 : 2.6 });
    }
  }
}

/** Draws a figure into its holder, with a legend that switches series off and on. */
function chart(holder, figure) {
  const plot = holder.querySelector(".plot");
  const legend = holder.querySelector(".legend");
  const hidden = new Set();
  const looks = looksOf(figure.series.map(({ name }) => name));
  for (const series of figure.series) series.look = looks.get(series.name);
  let logarithmic = false;
  const clip = `clip-${holder.dataset.document}-${holder.dataset.figure}`;

  function redraw() {
    const width = Math.max(220, plot.clientWidth);
    const height = Math.round(Math.min(340, Math.max(220, width * 0.62)));
    const visible = figure.series.filter(({ name }) => !hidden.has(name));
    const { marks, at } = scaleOf(figure, visible);
    const xs = figure.series.flatMap(({ x }) => x);
    const along = (logarithmic ? logScale : linearScale)(xs);
    const ends = 7 * Math.max(...marks.map((m) => shown(m).length));
    // Half of the last number stands right of its tick.
    const right = Math.max(20, 6 + 3.5 * shown(along.last).length);
    const room = { top: 26, right, bottom: 38, left: 12 + ends };
    const [inner, tall] = [width - room.left - room.right, height - room.top - room.bottom];
    const left = (x) => room.left + along.at(x) * inner;
    const top = (y) => room.top + (1 - at(y)) * tall;

    plot.replaceChildren();
    const label = `${figure.title}: ${figure.y} by ${figure.x}. Arrow keys read the values.`;
    const svg = draw(plot, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": label });
    const frame = { x: room.left, y: room.top, width: inner, height: tall };
    draw(draw(svg, "clipPath", { id: clip }), "rect", frame);
    draw(svg, "text", { x: 0, y: 12 }, figure.y);
    draw(svg, "text", { x: width - room.right, y: height - 4, "text-anchor": "end" }, figure.x);
    const [end, bottom] = [width - room.right, room.top + tall];
    for (const mark of marks) {
      draw(svg, "line", { class: "grid", x1: room.left, x2: end, y1: top(mark), y2: top(mark) });
      draw(svg, "text", { x: room.left - 7, y: top(mark) + 4, "text-anchor": "end" }, shown(mark));
    }
    for (const mark of along.marks(Math.max(2, Math.floor(inner / 80)))) {
      draw(svg, "line", { class: "axis", x1: left(mark), x2: left(mark), y1: bottom, y2: bottom + 4 });
      draw(svg, "text", { x: left(mark), y: bottom + 17, "text-anchor": "middle" }, shown(mark));
    }
    draw(svg, "line", { class: "axis", x1: room.left, x2: end, y1: bottom, y2: bottom });
    // Ours above the others, and thin retraining above ours: where they meet both are seen.
    const rank = ({ name }) => (name === "retrain" ? 2 : OURS.test(name) ? 1 : 0);
    for (const series of [...visible].sort((a, b) => rank(a) - rank(b))) {
      drawSeries(svg, series, { left, top, at, clip });
    }
    reader(plot, svg, figure, visible, { left, top, at, bottom, from: room.top });
  }

  for (const series of figure.series) {
    const { name } = series;
    const button = add(legend, "button", { type: "button", "aria-pressed": "true" });
    if (OURS.test(name)) button.classList.add("ours");
    swatch(button, series);
    add(button, "span", {}, name);
    button.addEventListener("click", () => {
      hidden.has(name) ? hidden.delete(name) : hidden.add(name);
      button.setAttribute("aria-pressed", String(!hidden.has(name)));
      redraw();
    });
  }
  if (byRound(figure)) {
    const button = add(holder.querySelector(".scales"), "button", { type: "button", "aria-pressed": "false" }, "Logarithmic rounds");
    button.addEventListener("click", () => {
      logarithmic = !logarithmic;
      button.setAttribute("aria-pressed", String(logarithmic));
      redraw();
    });
  }
  let width = 0;
  new ResizeObserver(() => {
    if (plot.clientWidth !== width) redraw();
    width = plot.clientWidth;
  }).observe(plot);
  let before = [];
  addEventListener("beforeprint", () => {
    before = [...hidden];
    hidden.clear();
    redraw();
  });
  addEventListener("afterprint", () => {
    before.forEach((name) => hidden.add(name));
    redraw();
  });
  redraw();
}
