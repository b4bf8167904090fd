// Loads Plotly's script while nobody waits for it, so that the next page's figures come sooner. Draws nothing.

const SETTLED_MS = 500; // after the page came; what is below its first screen is drawn by then

export default function ({ data }) {
  const own = document.querySelector('script[type="module"][src*="/static/js/"]');
  if (!own || !data.module) return;
  // A script that cannot be loaded is asked for again by the page that needs it, which then shows the error.
  const load = () => import(new URL(data.module, own.src)).catch(() => {});
  const timer = setTimeout(() => requestIdleCallback(load), SETTLED_MS);
  return () => clearTimeout(timer);
}
