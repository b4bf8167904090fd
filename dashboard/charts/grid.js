
// Adds tooltips, arrow keys, clicks, folding operators and a saved picture to the table of grid.py. All it needs to know
// of the series is in the table's links and titles.

const unfolded = (window.tilewatchUnfolded ??= {}); // what somebody folded stays so when the page runs again
const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

export default function ({ data, setTriggerValue }) {
  return follow(data, (root) => {
    fill(root, data.drawings);
    const table = root.querySelector("table");
    root.querySelector(":scope > .save-picture")?.remove();
    if (!table.dataset.alive) {
      table.dataset.alive = "yes"; // the page ran again with the same HTML, to which all this was added
      enliven(root, table, setTriggerValue);
    }
    saves(root, data, () => drawn(root));
  });
}

function enliven(root, table, setTriggerValue) {
  hovers(root, table);
  walks(table);
  folds(root, table);
  table.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return; // a new tab is the browser's
    event.preventDefault();
    setTriggerValue("opened", Object.fromEntries(new URL(link.href).searchParams));
  });
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

// The Tab key stops once in the table. The arrow keys then move to the next cell that is not empty or folded.
function walks(table) {
  const links = () => [...table.querySelectorAll("tbody tr:not([hidden])")].map(
    (row) => [...row.cells].slice(1).map((cell) => cell.querySelector("a")));
  const stop = (link) => {
    table.querySelector('a[tabindex="0"]')?.setAttribute("tabindex", "-1");
    link?.setAttribute("tabindex", "0");
  };
  table.querySelectorAll("a").forEach((link) => link.setAttribute("tabindex", "-1"));
  stop(links().flat().find(Boolean));
  table.addEventListener("focusin", (event) => event.target.matches("a") && stop(event.target));
  table.addEventListener("folded", () => stop(links().flat().find(Boolean)));
  table.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step || !event.target.matches("a")) return;
    event.preventDefault(); // the page would scroll
    const rows = links();
    let row = rows.findIndex((line) => line.includes(event.target));
    let column = rows[row].indexOf(event.target);
    do [row, column] = [row + step[0], column + step[1]];
    while (rows[row] && column >= 0 && column < rows[row].length && !rows[row][column]);
    rows[row]?.[column]?.focus();
  });
}

// A click on an operator folds or unfolds its problems. grid.py decides which start folded.
function folds(root, table) {
  const operators = [...table.querySelectorAll("tbody[data-operator]")];
  if (!operators.length) return;
  const mine = (unfolded[root.id] ??= new Map());
  const fold = (body, open) => {
    body.querySelector("button").setAttribute("aria-expanded", open);
    for (const row of [...body.rows].slice(1)) row.hidden = !open;
    mine.set(body.dataset.operator, open);
  };
  operators.forEach((body) => {
    const open = mine.get(body.dataset.operator);
    if (open !== undefined) fold(body, open);
  });
  const all = document.createElement("button");
  const caption = () => (all.textContent = anyFolded() ? "Unfold all" : "Fold all");
  const anyFolded = () => operators.some((body) => body.rows[1].hidden);
  const done = () => (caption(), table.dispatchEvent(new Event("folded")));
  all.type = "button";
  all.className = "folds";
  all.addEventListener("click", () => {
    const open = anyFolded();
    operators.forEach((body) => fold(body, open));
    done();
  });
  for (const body of operators)
    body.querySelector("button").addEventListener("click", () => {
      fold(body, body.rows[1].hidden);
      done();
    });
  root.append(all); // below, where nothing moves when it comes
  done();
}

// Returns the table and its scale as on the page, but complete if the page shows only a part.
function drawn(root) {
  const table = root.querySelector("table");
  const scale = root.querySelector(".scale");
  const from = table.getBoundingClientRect();
  const ink = getComputedStyle(table);
  const height = from.height + scale.getBoundingClientRect().height + 2 * MARGIN_PX;
  const svg = element("svg", { width: from.width, height, color: ink.color, "font-family": ink.fontFamily });
  svg.append(paper(root, from.width, height));
  for (const cell of table.querySelectorAll("th, td")) {
    if (!cell.textContent || !cell.getClientRects().length) continue; // empty, or folded away
    const { left, top, width, height } = cell.getBoundingClientRect();
    const look = getComputedStyle(cell);
    const [x, y] = [left - from.left, top - from.top];
    if (cell.tagName === "TD") svg.append(element("rect", { x, y, width, height, fill: look.backgroundColor }));
    const name = cell.tagName === "TH" && cell.scope !== "col";
    const spark = cell.querySelector(".spark");
    const beside = spark ? spark.getBoundingClientRect().left - left - 8 : width;
    const words = element("text", {
      x: name ? x + parseFloat(look.paddingLeft) : spark ? x + beside : x + width / 2,
      y: y + height / 2,
      "text-anchor": name ? "start" : spark ? "end" : "middle",
      "dominant-baseline": "central",
      "font-size": look.fontSize,
      fill: look.color,
    });
    words.textContent = cell.textContent;
    svg.append(words);
    if (spark) {
      const line = spark.cloneNode(true);
      const at = spark.getBoundingClientRect();
      line.setAttribute("x", at.left - from.left);
      line.setAttribute("y", at.top - from.top);
      line.setAttribute("width", at.width);
      line.setAttribute("color", look.color);
      svg.append(line);
    }
  }
  const copy = scale.cloneNode(true);
  copy.setAttribute("x", MARGIN_PX);
  copy.setAttribute("y", from.height + MARGIN_PX);
  svg.append(copy);
  return svg;
}
