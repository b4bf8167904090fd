// Fetches and runs what the next page will need while nobody waits for it. Draws nothing.

const SETTLED_MS = 500; // after the page came; what stands below its first screen is drawn by then

export default function ({ data }) {
  const own = document.querySelector('script[type="module"][src*="/static/js/"]');
  if (!own) return;
  // A module that cannot be had is asked for again by the page that needs it, which then says so.
  const load = () => data.modules.forEach((name) => import(new URL(name, own.src)).catch(() => {}));
  const timer = setTimeout(() => requestIdleCallback(load), SETTLED_MS);
  return () => clearTimeout(timer);
}
