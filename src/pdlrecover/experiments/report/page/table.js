// Tables: sorting, what stays in place while the rest is scrolled sideways, and what is folded.

const MOST = 0.55; // of the room, for the columns that stay in place

const MISSING = "–";

/** Returns the value of a cell: what it shows, unless that is rounded; undefined if it has none. */
function exact(cell) {
  const shown = cell.textContent;
  return cell.dataset.value ?? (shown === MISSING ? undefined : shown);
}

/** Sorts a table by a column: first up, then down. Cells without a value come last. */
function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      const numeric = head.classList.contains("number");
      const value = (row) => exact(row.cells[column]);
      const compare = (a, b) => {
        if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
        const order = numeric ? Number(a) - Number(b) : a.localeCompare(b, "en", { numeric: true });
        return down ? -order : order;
      };
      body.append(...[...body.rows].sort((a, b) => compare(value(a), value(b))));
      heads.forEach((each) => each.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
    });
  });
}

/** Holds the columns that say what a row is, and shows where there is more beside.
 *
 * All of them if they leave enough room for the others, else the last one, else none.
 */
function sideways(holder) {
  const wide = holder.querySelector(".wide");
  const table = wide.querySelector("table");
  const heads = [...table.tHead.querySelectorAll(".held")];

  function hold() {
    const widths = heads.map((head) => head.getBoundingClientRect().width);
    const room = MOST * wide.clientWidth;
    const all = widths.reduce((sum, each) => sum + each, 0);
    const last = heads.length - 1;
    const from = all <= room ? 0 : widths[last] <= room ? last : heads.length;
    let left = 0;
    widths.forEach((width, k) => {
      table.style.setProperty(`--left-${k}`, k < from ? "auto" : `${left}px`);
      if (k >= from) left += width - 1; // one pixel over the other: nothing shows between them
    });
    holder.style.setProperty("--bar", `${wide.offsetWidth - wide.clientWidth}px`);
    tell();
  }
  function tell() {
    const rest = wide.scrollWidth - wide.clientWidth;
    holder.classList.toggle("over", rest > 1);
    holder.classList.toggle("left", wide.scrollLeft > 1);
    holder.classList.toggle("right", wide.scrollLeft < rest - 1);
  }
  wide.addEventListener("scroll", tell, { passive: true });
  const sizes = new ResizeObserver(hold);
  sizes.observe(wide);
  sizes.observe(table);
}

/** Unfolds what is folded for as long as it is printed. */
function unfolding(details) {
  let before = false;
  addEventListener("beforeprint", () => {
    before = details.open;
    details.open = true;
  });
  addEventListener("afterprint", () => (details.open = before));
}
