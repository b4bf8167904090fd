// What a page does with the table of grid.py: words over a cell, a walk by the arrow keys, a click, a saved picture.
// Knows nothing of the series: the table's own links and titles say what and where.

const SHARP = 2; // pixels of a saved PNG for each on the page, as in plots.py
const MARGIN_PX = 8;
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
  const save = root.appendChild(document.createElement("button"));
  save.className = "save";
  save.textContent = `Save as ${data.picture.toUpperCase()}`;
  save.addEventListener("click", () => download(root, data));
}

function hovers(root, table) {
  const told = root.appendChild(document.createElement("div"));
  told.className = "told";
  told.popover = "manual";
  told.role = "tooltip";
  told.id = "told-of-cell";
  for (const link of table.querySelectorAll("a")) {
    link.dataset.told = link.title; // the browser's own hover would come late, and never to a keyboard
    link.removeAttribute("title");
  }
  const show = (event) => {
    const link = event.target.closest("a");
    if (!link) return hide();
    told.textContent = link.dataset.told;
    link.setAttribute("aria-describedby", told.id);
    told.showPopover();
    const cell = link.getBoundingClientRect();
    const size = told.getBoundingClientRect();
    const below = cell.bottom + MARGIN_PX + size.height < innerHeight;
    told.style.top = `${below ? cell.bottom + MARGIN_PX : Math.max(0, cell.top - MARGIN_PX - size.height)}px`;
    told.style.left = `${Math.max(MARGIN_PX, Math.min(cell.left, innerWidth - size.width - MARGIN_PX))}px`;
  };
  const hide = () => told.hidePopover();
  table.addEventListener("pointerover", show);
  table.addEventListener("pointerleave", hide);
  table.addEventListener("focusin", show);
  table.addEventListener("focusout", hide);
  table.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  // The panel stands over the window, and a cell that scrolls away would leave its words behind.
  root.addEventListener("wheel", hide, { passive: true });
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

function download(root, { picture, name }) {
  const svg = drawn(root);
  const source = new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" });
  if (picture === "svg") return hand(source, `${name}.svg`);
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    canvas.width = SHARP * svg.getAttribute("width");
    canvas.height = SHARP * svg.getAttribute("height");
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((png) => hand(png, `${name}.png`));
    URL.revokeObjectURL(image.src);
  };
  image.src = URL.createObjectURL(source);
}

function hand(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser reads it after this has returned
}

// The table and its scale as they stand on the page, whole where the page shows a part.
function drawn(root) {
  const table = root.querySelector("table");
  const scale = root.querySelector(".scale");
  const from = table.getBoundingClientRect();
  const ink = getComputedStyle(table);
  const height = from.height + scale.getBoundingClientRect().height + 2 * MARGIN_PX;
  const svg = element("svg", { width: from.width, height, color: ink.color, "font-family": ink.fontFamily });
  const paper = getComputedStyle(root).getPropertyValue("--st-background-color") || "#ffffff";
  svg.append(element("rect", { width: from.width, height, fill: paper }));
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

function element(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
