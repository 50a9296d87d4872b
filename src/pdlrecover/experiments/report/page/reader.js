// The values under the pointer, or at the place that the arrow keys have reached.

/** Shows the values at the place that the pointer or the arrow keys choose. */
function reader(plot, svg, figure, visible, { left, top, at, bottom, from }) {
  const all = new Set(visible.flatMap(({ x }) => x));
  const places = [...all].filter((x) => !Number.isNaN(left(x))).sort((a, b) => a - b);
  let group = null;
  let tip = null;
  let chosen = -1;

  function clear() {
    group?.remove();
    tip?.remove();
    group = tip = null;
  }
  function show(index) {
    clear();
    if (!places.length) return;
    chosen = Math.max(0, Math.min(places.length - 1, index));
    const place = places[chosen];
    const rows = visible
      .flatMap((series) => series.x.map((x, i) => ({ series, x, i })))
      .filter(({ series, x, i }) => x === place && series.y[i] !== null && !Number.isNaN(at(series.y[i])))
      .sort((a, b) => b.series.y[b.i] - a.series.y[a.i]);
    group = draw(svg, "g", {});
    draw(group, "line", { class: "cursor", x1: left(place), x2: left(place), y1: from, y2: bottom });
    tip = add(plot, "div", { class: "tip", role: "status" });
    add(tip, "div", {}, `${figure.x} ${shown(place)}`);
    const body = add(add(tip, "table"), "tbody");
    for (const { series, i } of rows) {
      const [x, y] = [left(place), top(series.y[i])];
      const mark = dotted(series)
        ? point(group, "mark", { look: series.look, x, y, size: 4 })
        : draw(group, "circle", { class: "mark", cx: x, cy: y, r: 3.5 });
      mark.style.setProperty("--c", series.look.colour);
      const row = add(body, "tr", OURS.test(series.name) ? { class: "ours" } : {});
      const head = add(row, "th", { scope: "row" });
      swatch(head, series);
      head.append(series.name);
      const half = series.spread && series.spread[i];
      add(row, "td", {}, shown(series.y[i]) + (half ? ` ± ${shown(half)}` : ""));
      const label = series.labels && series.labels[i];
      if (label && label !== series.name) {
        add(add(body, "tr", { class: "label" }), "td", { colspan: 2 }, label);
      }
    }
    const scale = plot.clientWidth / svg.viewBox.baseVal.width;
    const x = left(place) * scale;
    const beside = x + 14 + tip.offsetWidth > plot.clientWidth ? x - 14 - tip.offsetWidth : x + 14;
    tip.style.left = `${Math.max(0, Math.min(beside, plot.clientWidth - tip.offsetWidth))}px`;
    tip.style.top = `${from * scale}px`;
  }
  function nearest(event) {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) * svg.viewBox.baseVal.width) / box.width;
    let best = 0;
    places.forEach((place, i) => {
      if (Math.abs(left(place) - x) < Math.abs(left(places[best]) - x)) best = i;
    });
    show(best);
  }
  svg.addEventListener("pointermove", nearest);
  svg.addEventListener("pointerdown", nearest);
  svg.addEventListener("pointerleave", clear);
  svg.addEventListener("blur", clear);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -places.length, End: places.length }[event.key];
    if (step) show(chosen + step);
    else if (event.key === "Escape") clear();
    else return;
    event.preventDefault();
  });
}
