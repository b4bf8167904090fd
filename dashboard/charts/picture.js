// Shared by our own drawings: a tooltip over a mark, and a button that saves a picture. Knows no drawing.

const SHARP = 2; // pixels of a saved PNG for each on the page, as in plots.py
const MARGIN_PX = 8;

function element(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// Calls `enliven` with the element of this HTML, and with each that Streamlit puts in its place. It does so where an
// element above comes or goes, without running the component again (1.67, 2026-11-28).
function follow({ of, version }, enliven) {
  let root;
  const look = () => {
    const shown = document.getElementById(of);
    if (shown && shown !== root && shown.dataset.version === `${version}`) enliven((root = shown));
  };
  look();
  const changes = new MutationObserver(look);
  changes.observe(document.body, { childList: true, subtree: true });
  return () => changes.disconnect();
}

// Inserts drawings into the places that plots.py reserved for them.
function fill(root, drawings) {
  root.querySelectorAll("span.drawn").forEach((place, i) => (place.outerHTML = drawings[i])); // escaped where they were written
}

// A tooltip over the window: `show(place, words)` shows it next to a rectangle, `hide()` hides it.
function panel(root) {
  const tooltip = root.appendChild(document.createElement("div"));
  tooltip.className = "tooltip-panel";
  tooltip.popover = "manual";
  tooltip.role = "tooltip";
  tooltip.id = `tooltip-${Math.random().toString(36).slice(2)}`;
  const hide = () => tooltip.hidePopover();
  const show = (place, words) => {
    tooltip.textContent = words;
    tooltip.showPopover();
    const size = tooltip.getBoundingClientRect();
    const below = place.bottom + MARGIN_PX + size.height < innerHeight;
    tooltip.style.top = `${below ? place.bottom + MARGIN_PX : Math.max(0, place.top - MARGIN_PX - size.height)}px`;
    tooltip.style.left = `${Math.max(MARGIN_PX, Math.min(place.left, innerWidth - size.width - MARGIN_PX))}px`;
  };
  // The tooltip is fixed to the window, so scrolling its mark away hides it.
  root.addEventListener("wheel", hide, { passive: true });
  return { show, hide, id: tooltip.id };
}

// A button that saves what `drawn` returns: an SVG with its width and height.
function saves(root, { picture, name }, drawn) {
  const save = root.appendChild(document.createElement("button"));
  save.className = "save-picture";
  save.textContent = `Save as ${picture.toUpperCase()}`;
  save.addEventListener("click", () => download(drawn(), picture, name));
}

function paper(root, width, height) {
  const fill = getComputedStyle(root).getPropertyValue("--st-background-color") || "#ffffff";
  return element("rect", { width, height, fill });
}

function download(svg, picture, name) {
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
