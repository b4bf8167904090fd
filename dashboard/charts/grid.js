
// Adds to the table of grid.py: tooltips, arrow keys, clicks, a saved picture. Knows nothing of the series: links and
// titles of the table have all it needs.

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".series-grid");
  root.innerHTML = data.html; // every value in it was escaped where it was written
  const table = root.querySelector("table");
  hovers(root, table);
  walks(table);
  table.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return; // a new tab is the browser's
    event.preventDefault();
    setTriggerValue("opened", Object.fromEntries(new URL(link.href).searchParams));
  });
  saves(root, data, () => drawn(root));
}

function hovers(root, table) {
  const tooltip = panel(root);
  for (const link of table.querySelectorAll("a")) {
    link.dataset.hint = link.title; // the browser's own hover would come late, and never to a keyboard
    link.removeAttribute("title");
  }
  const show = (event) => {
    const link = event.target.closest("a");
    if (!link) return tooltip.hide();
    link.setAttribute("aria-describedby", tooltip.id);
    tooltip.show(link.getBoundingClientRect(), link.dataset.hint);
  };
  table.addEventListener("pointerover", show);
  table.addEventListener("pointerleave", tooltip.hide);
  table.addEventListener("focusin", show);
  table.addEventListener("focusout", tooltip.hide);
  table.addEventListener("keydown", (event) => event.key === "Escape" && tooltip.hide());
}

// One stop for the Tab key; from there the arrows go to the next cell that is not empty.
function walks(table) {
  const rows = [...table.tBodies[0].rows].map((row) => [...row.cells].slice(1).map((cell) => cell.querySelector("a")));
  const stop = (link) => {
    table.querySelector('a[tabindex="0"]')?.setAttribute("tabindex", "-1");
    link?.setAttribute("tabindex", "0");
  };
  rows.flat().forEach((link) => link?.setAttribute("tabindex", "-1"));
  stop(rows.flat().find(Boolean));
  table.addEventListener("focusin", (event) => stop(event.target));
  table.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault(); // the page would scroll
    let row = rows.findIndex((line) => line.includes(event.target));
    let column = rows[row].indexOf(event.target);
    do [row, column] = [row + step[0], column + step[1]];
    while (rows[row] && column >= 0 && column < rows[row].length && !rows[row][column]);
    rows[row]?.[column]?.focus();
  });
}

// The table and its scale as they stand on the page, whole where the page shows a part.
function drawn(root) {
  const table = root.querySelector("table");
  const scale = root.querySelector(".scale");
  const from = table.getBoundingClientRect();
  const ink = getComputedStyle(table);
  const height = from.height + scale.getBoundingClientRect().height + 2 * MARGIN_PX;
  const svg = element("svg", { width: from.width, height, color: ink.color, "font-family": ink.fontFamily });
  svg.append(paper(root, from.width, height));
  for (const cell of table.querySelectorAll("th, td")) {
    if (!cell.textContent) continue;
    const { left, top, width, height } = cell.getBoundingClientRect();
    const look = getComputedStyle(cell);
    const [x, y] = [left - from.left, top - from.top];
    if (cell.tagName === "TD") svg.append(element("rect", { x, y, width, height, fill: look.backgroundColor }));
    const right = look.textAlign === "right";
    const words = element("text", {
      x: right ? x + width - 6 : x + width / 2,
      y: y + height / 2,
      "text-anchor": right ? "end" : "middle",
      "dominant-baseline": "central",
      "font-size": look.fontSize,
      fill: look.color,
    });
    words.textContent = cell.textContent;
    svg.append(words);
  }
  const copy = scale.cloneNode(true);
  copy.setAttribute("x", MARGIN_PX);
  copy.setAttribute("y", from.height + MARGIN_PX);
  svg.append(copy);
  return svg;
}
