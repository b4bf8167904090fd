// Keeps in the page's address which part of a chart a visitor zoomed to. The server draws that part again when a click
// on a point draws another figure (charts/trend.py), and so does Back or a copied link.

const CHART = ".js-plotly-plot:not([data-zoom-is-kept])";
const OF_A_ZOOM = /^[xy]axis\.(range|autorange)/; // other changes of the layout are the window's size, or a tool

const keep = ({ meta, xaxis, yaxis }) => {
  const query = new URLSearchParams(location.search);
  if (xaxis.autorange && yaxis.autorange) query.delete("zoom");
  else query.set("zoom", [meta, ...xaxis.range, ...yaxis.range].join());
  history.replaceState(history.state, "", `?${query}`);
  // Streamlit (1.67) sends the parameters that it knew before, unless the address changes as by Back. So the page runs.
  dispatchEvent(new PopStateEvent("popstate", { state: history.state }));
};

new MutationObserver(() => {
  for (const chart of document.querySelectorAll(CHART)) {
    if (!chart.on || !chart.layout) continue; // Plotly has not begun to draw it
    chart.dataset.zoomIsKept = "yes";
    chart.on("plotly_relayout", (change) => {
      if (chart.layout.meta && Object.keys(change).some((name) => OF_A_ZOOM.test(name))) keep(chart.layout);
    });
  }
}).observe(document.body, { childList: true, subtree: true });
