// The ledger as a picture: lanes for sums over many peers, and one for what single peers sent.
// Peers in a ring are seen only together; peers without a ring are seen one by one.

const KINDS = ["fresh sums", "stored sums", "directions", "dot products", "removed sums", "individual"];
const LANES = {
  kept: { title: "One sum over all kept peers", brief: "Kept" },
  all: { title: "Sum over all peers", brief: "All" },
  removed: { title: "Sum over removed peers", brief: "Removed" },
  other: { title: "Others: see the table", brief: "Others" },
  single: { title: "Single peers’ updates", brief: "Single" },
};
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const rough = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 0 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const NARROW = 640;
const DENSE = 118; // columns narrower than this leave out what the lane and the table say as well

/** In which lane an opening is, from whom it was of; what is worded in no known way is on its own. */
function laneOf(of) {
  if (/^one peer/.test(of)) return "single";
  if (/^\d+( to \d+)? kept peers together$/.test(of)) return "kept";
  if (/^all \d+ peers together$/.test(of)) return "all";
  return /^the removed peers together$/.test(of) ? "removed" : "other";
}

/** The kinds of openings that any method made, by lanes; single updates are always there. */
function columnsOf(ledger) {
  const found = new Map([["single individual", { kind: "individual", lane: "single" }]]);
  for (const opened of Object.values(ledger)) {
    for (const [kind, { of }] of Object.entries(opened)) found.set(`${laneOf(of)} ${kind}`, { kind, lane: laneOf(of) });
  }
  const order = ({ kind, lane }) => 100 * Object.keys(LANES).indexOf(lane) + (KINDS.indexOf(kind) + 50) % 50;
  const sorted = [...found.values()].sort((a, b) => order(a) - order(b));
  const name = (kind) => (kind === "individual" ? "own updates" : kind.replace(/ \((kept|all|removed)\)$/, ""));
  return sorted.map(({ kind, lane }) => ({ kind, lane, name: name(kind) }));
}

/** What a method opened of a column: nothing if it is of others than the column's lane. */
function openedIn(opened, { kind, lane }) {
  const entry = opened[kind];
  return entry && entry.openings && laneOf(entry.of) === lane ? entry : null;
}

/** Seven peers: in a ring if they are seen together, apart if one by one. Grows with the count. */
function peers(parent, lane, x, y, count) {
  const radius = Math.min(17, 7 + 2.1 * Math.log10(Math.max(1, count)));
  const group = draw(parent, "g", { class: lane });
  if (lane !== "single") draw(group, "circle", { class: "ring", cx: x, cy: y, r: radius });
  const reach = radius * (lane === "single" ? 0.8 : 0.55);
  draw(group, "circle", { class: "peer", cx: x, cy: y, r: radius / 6.5 });
  for (let k = 0; k < 6; k++) {
    const turn = (Math.PI * k) / 3;
    const place = { cx: x + reach * Math.cos(turn), cy: y + reach * Math.sin(turn) };
    draw(group, "circle", { class: "peer", ...place, r: radius / 6.5 });
  }
}

/** An eye: all peers, who see what is opened. */
function eye(parent, x, y) {
  const lids = [-12, 12].map((dy) => `M${x - 11},${y}Q${x},${y + dy} ${x + 11},${y}`).join("");
  draw(parent, "path", { class: "thread", d: lids });
  draw(parent, "circle", { class: "peer", cx: x, cy: y, r: 3.2 });
}

/** What a lane means, drawn: peers, how their updates flow, and the eye that sees them. */
function meaning(parent, lane, x, y, scale = 1) {
  const place = `translate(${x} ${y}) scale(${scale}) translate(${-x} ${-y})`;
  const group = draw(parent, "g", { class: lane, transform: place });
  const dots = [-15, -5, 5, 15];
  for (const dy of dots) {
    draw(group, "circle", { class: "peer", cx: x + 5, cy: y + dy, r: 2.6 });
    const to = lane === "single" ? `L${x + 68},${y + dy * 0.45}` : `C${x + 28},${y + dy} ${x + 24},${y} ${x + 34},${y}`;
    draw(group, "path", { class: "thread", d: `M${x + 9},${y + dy}${to}` });
  }
  if (lane !== "single") {
    draw(group, "circle", { class: "ring", cx: x + 45, cy: y, r: 11 });
    draw(group, "text", { class: "sign", x: x + 45, y: y + 5.5, "text-anchor": "middle" }, "Σ");
    draw(group, "path", { class: "thread", d: `M${x + 57},${y}H${x + 68}` });
  }
  eye(group, x + 83, y);
}

/** The picture's own space. */
function canvas(picture, width, height) {
  const label = "What each method opened; the table below says the same.";
  return draw(picture, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
}

/** How many peers a method's sums were of, in words; nothing if it opened none. */
function peersOf(opened) {
  const found = Object.values(opened).map(({ of }) => /^(\d+) kept/.exec(of)).find(Boolean);
  return found ? `${whole.format(found[1])} peers` : "";
}

/** A cell's picture and counts; a dash for nothing, and words for no single update. */
function cell(svg, entry, lane, x, y, dense = false) {
  if (!entry) {
    const place = { class: "small", x: x + 18, y: y + 4, "text-anchor": "middle" };
    draw(svg, "text", place, lane === "single" ? "none" : "–");
    return;
  }
  peers(svg, lane, x + 18, y, entry.openings);
  const count = dense && entry.openings >= 1e5 ? rough : whole;
  draw(svg, "text", { class: `count ${lane}`, x: x + 41, y: y - 1 }, count.format(entry.openings));
  draw(svg, "text", { class: "small", x: x + 41, y: y + 13 }, `${compact.format(entry.numbers)}${dense ? "" : " numbers"}`);
}

/** Methods down, kinds of openings across. */
function drawWide(picture, ledger, width) {
  const columns = columnsOf(ledger);
  const [side, head, row, gap] = [176, 104, 50, 8];
  const lanes = Object.keys(LANES).filter((lane) => columns.some((column) => column.lane === lane));
  const step = (width - side - gap * (lanes.length - 1)) / columns.length;
  const dense = step < DENSE;
  const inset = dense ? 5 : 12;
  const methods = Object.entries(ledger);
  const height = head + row * methods.length + 6;
  const svg = canvas(picture, width, height);
  let x = side;
  for (const lane of lanes) {
    const mine = columns.filter((column) => column.lane === lane);
    draw(svg, "rect", { class: `lane ${lane}`, x, y: 0, width: step * mine.length, height, rx: 8 });
    meaning(svg, lane, x + inset, 32, dense ? 0.75 : 1);
    const wide = step * mine.length > 310;
    if (wide) draw(svg, "text", { class: `lane-name ${lane}`, x: x + 118, y: 36 }, LANES[lane].title);
    else draw(svg, "text", { class: `lane-name ${lane}`, x: x + inset, y: 68 }, LANES[lane].brief);
    for (const column of mine) {
      draw(svg, "text", { class: dense ? "kind dense" : "kind", x: x + inset, y: head - 14 }, column.name);
      methods.forEach(([, opened], i) => {
        const place = [x + inset - 6, head + row * (i + 0.5)];
        cell(svg, openedIn(opened, column), lane, ...place, dense);
      });
      x += step;
    }
    x += gap;
  }
  methods.forEach(([name, opened], i) => {
    const y = head + row * i;
    const ours = OURS.test(name);
    draw(svg, "line", { class: "rule", x1: 0, x2: width, y1: y, y2: y });
    if (ours) draw(svg, "line", { class: "rule ours", x1: 1.5, x2: 1.5, y1: y + 8, y2: y + row - 8 });
    draw(svg, "text", { class: ours ? "name ours" : "name", x: 10, y: y + row / 2 - 1 }, name);
    draw(svg, "text", { class: "small", x: 10, y: y + row / 2 + 13 }, peersOf(opened));
  });
}

/** One block for each method, its openings below each other: for phones. */
function drawNarrow(picture, ledger, width) {
  const columns = columnsOf(ledger);
  const [head, title, row] = [56, 34, 38];
  const lanes = Object.keys(LANES).filter((lane) => columns.some((column) => column.lane === lane));
  const blocks = Object.entries(ledger).map(([name, opened]) => {
    const used = columns.filter((column) => column.lane === "single" || openedIn(opened, column));
    return { name, opened, used };
  });
  const height = head * lanes.length + blocks.reduce((sum, { used }) => sum + title + row * used.length + 10, 14);
  const svg = canvas(picture, width, height);
  lanes.forEach((lane, i) => {
    draw(svg, "rect", { class: `lane ${lane}`, x: 0, y: head * i, width, height: head - 4, rx: 8 });
    meaning(svg, lane, 12, head * i + 26);
    draw(svg, "text", { class: `lane-name ${lane}`, x: 118, y: head * i + 30 }, LANES[lane].title);
  });
  let y = head * lanes.length + 14;
  for (const { name, opened, used } of blocks) {
    draw(svg, "text", { class: OURS.test(name) ? "name ours" : "name", x: 0, y: y + 18 }, name);
    draw(svg, "text", { class: "small", x: width, y: y + 18, "text-anchor": "end" }, peersOf(opened));
    y += title - 6;
    for (const column of used) {
      const { lane, name: said } = column;
      const any = openedIn(opened, column);
      if (any) draw(svg, "rect", { class: `lane ${lane}`, x: 0, y, width, height: row - 3, rx: 6 });
      draw(svg, "text", { class: any ? "kind" : "", x: 12, y: y + row / 2 + 3 }, said);
      cell(svg, any, lane, width - 150, y + row / 2 - 1);
      y += row;
    }
    y += 16;
  }
}

/** Draws the ledger of a document into its holder, anew when the width changes. */
function ledgerPicture(holder, ledger) {
  const picture = holder.querySelector(".picture");
  let width = 0;
  const redraw = () => {
    if (picture.clientWidth === width) return;
    width = picture.clientWidth;
    picture.replaceChildren();
    (width < NARROW ? drawNarrow : drawWide)(picture, ledger, width);
  };
  new ResizeObserver(redraw).observe(picture);
  redraw();
}
