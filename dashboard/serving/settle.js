// Shows a page that was just loaded when its first screen stands still. Streamlit draws a grey box in place of each
// element whose script has not come, and words, labels and code later than the element that they are in: all of these
// moved what stood below them (a layout shift of 0.4 on the Overview, 2026-11-27).
// Also loads Plotly's script, 4.7 MB: while the server runs the page Series, else after the first screen.

const FRAMES_STILL = 1; // five took 0.1 s more (2026-11-28)
const LONGEST_MS = 4000; // a script that does not come must not hide the page
const SETTLED_MS = 500; // what is below the first screen is drawn by then
const PLOTS_FIRST = /\/series$/;
// page.css or the figure reserves the height of these.
const RESERVED = '[class*="st-key-plot-"], [class*="st-key-table-"], .st-key-commit, .st-key-view';
const GREY_BOX = `.stElementContainer:not(${RESERVED}) > [data-testid="stSkeleton"]`;
const UNDRAWN = `${GREY_BOX}, span.drawn`; // plots.py reserves the place of a drawing with such a span

const { plotly } = document.querySelector("script[data-plotly]").dataset;
// If loading fails, the first figure loads it again and shows the error.
const loadPlotly = () => import(new URL(`static/js/${plotly}`, document.baseURI)).catch(() => {});

const show = () => {
  delete document.body.dataset.moving;
  setTimeout(() => requestIdleCallback(loadPlotly), SETTLED_MS);
};

const isOnScreen = (element) => element.getBoundingClientRect().top < innerHeight;

const readPlaces = () => {
  const main = document.querySelector(".stMainBlockContainer");
  const hasPlotOrEnded = document.querySelector('.stApp[data-test-script-state="notRunning"], .js-plotly-plot .main-svg');
  if (!main?.querySelector("h1") || [...main.querySelectorAll(UNDRAWN)].some(isOnScreen)) return "";
  const elements = [...main.querySelectorAll(".stElementContainer")];
  const boxes = elements.filter(isOnScreen).map((each) => each.getBoundingClientRect());
  if (!hasPlotOrEnded && boxes.length === elements.length && boxes.every((box) => box.bottom < innerHeight)) return "";
  return boxes.map((box) => `${box.x} ${box.y} ${box.height}`).join();
};

const look = (before, still) => {
  const now = readPlaces();
  const stood = now && now === before ? still + 1 : 0;
  if (stood === FRAMES_STILL) show();
  else requestAnimationFrame(() => look(now, stood));
};

const awaitRun = () => {
  if (document.querySelector('.stApp[data-test-script-state="running"]')) loadPlotly();
  else requestAnimationFrame(awaitRun);
};

document.body.dataset.moving = "yes";
setTimeout(show, LONGEST_MS);
if (PLOTS_FIRST.test(location.pathname)) awaitRun();
look("", 0);
