// Loads Plotly's script early, so that the next page's figures appear sooner. Draws nothing.

const SETTLED_MS = 500; // after the page came; what is below its first screen is drawn by then

export default function ({ data }) {
  const own = document.querySelector('script[type="module"][src*="/static/js/"]');
  if (!own || !data.module) return;
  // If loading fails, the page that needs the script loads it again and shows the error.
  const load = () => import(new URL(data.module, own.src)).catch(() => {});
  const timer = setTimeout(() => requestIdleCallback(load), SETTLED_MS);
  return () => clearTimeout(timer);
}
