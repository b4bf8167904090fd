// Draws the charts of a page in the colours of the reader's theme, folds the operators of a table, and stacks the cells of
// a table that is wider than the screen. Loads Plotly only on a page with a chart, and only after the first paint.

const charts = [...document.querySelectorAll(".chart")];
const NARROW_PX = 500, STACKED_PX = 640;
const dark = matchMedia("(prefers-color-scheme: dark)");

if (window.Plotly) drawAll();
else if (charts.length) requestAnimationFrame(() => setTimeout(loadPlotly));
for (const table of document.querySelectorAll("table.series")) folds(table);
const plain = [...document.querySelectorAll("table.plain")];
plain.forEach(nameCells);
stackWide();
addEventListener("resize", stackWide);
addEventListener("toggle", stackWide, true);  // a closed <details> has no width

function loadPlotly() {
  const script = document.createElement("script");
  script.src = "plotly.min.js";
  script.addEventListener("load", drawAll);
  document.head.append(script);
}

function drawAll() {
  charts.forEach(draw);
  dark.addEventListener("change", () => charts.forEach(draw));
}

function draw(place) {
  place.figure ??= place.querySelector("script").textContent;
  const { data, layout } = JSON.parse(place.figure);
  const look = getComputedStyle(document.documentElement);
  const ink = look.getPropertyValue("--ink").trim();
  const line = look.getPropertyValue("--line").trim();
  layout.paper_bgcolor = layout.plot_bgcolor = "rgba(0,0,0,0)";
  layout.font = { color: ink, family: "system-ui, sans-serif", ...layout.font };
  for (const axis of ["xaxis", "yaxis", "yaxis2"])
    if (layout[axis]) layout[axis] = { automargin: true, gridcolor: line, linecolor: line, zerolinecolor: line, ...layout[axis] };
  if (place.clientWidth < NARROW_PX) fitPhone(data, layout);
  window.Plotly.react(place, data, layout, { displaylogo: false, responsive: true }).then(() => place.setAttribute("data-drawn", ""));
}

// Breaks the long texts of a chart into lines, because Plotly cuts what does not fit beside the plot.
function fitPhone(data, layout) {
  const lines = (text) => text.replace(/(?=\S)(.{1,34})(?: |$)/g, "$1<br>").replace(/<br>$/, "");
  for (const trace of data) if (trace.name) trace.name = lines(trace.name);
  if (layout.xaxis?.title?.text) layout.xaxis.title.text = layout.xaxis.title.text.split("<br>").map(lines).join("<br>");
  if (data.some((trace) => typeof trace.y?.[0] === "string")) layout.yaxis.tickfont = { size: 8 };
}

// Writes the head of its column into each cell, which site.css shows where the cells of a row are stacked.
function nameCells(table) {
  const heads = [...table.tHead.rows[0].cells].map((head) => head.textContent);
  for (const row of table.tBodies[0].rows) heads.forEach((head, place) => (row.cells[place].dataset.head = head));
}

function stackWide() {
  for (const table of plain) {
    table.classList.remove("stacked");
    table.classList.toggle("stacked", innerWidth < STACKED_PX && table.offsetWidth > table.parentElement.clientWidth);
  }
}

function folds(table) {
  for (const body of table.querySelectorAll("tbody[data-operator]")) {
    const button = body.querySelector("button");
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") !== "true";
      button.setAttribute("aria-expanded", open);
      for (const row of [...body.rows].slice(1)) row.hidden = !open;
    });
  }
}
