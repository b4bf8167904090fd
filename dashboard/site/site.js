// Draws the charts of a page in the colours of the reader's theme, and folds the operators of a table. Loads Plotly only
// on a page with a chart, and only after the first paint.

const charts = [...document.querySelectorAll(".chart")];
const dark = matchMedia("(prefers-color-scheme: dark)");

if (window.Plotly) drawAll();
else if (charts.length) requestAnimationFrame(() => setTimeout(loadPlotly));
for (const table of document.querySelectorAll("table.series")) folds(table);

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
  window.Plotly.react(place, data, layout, { displaylogo: false, responsive: true }).then(() => place.setAttribute("data-drawn", ""));
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
