// What our own drawings share: words over a mark, and a picture to save. Knows no drawing.

const SHARP = 2; // pixels of a saved PNG for each on the page, as in plots.py
const MARGIN_PX = 8;

function element(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// A panel over the window: `over(place, words)` shows it beside a place on it, `hide()` takes it away.
function panel(root) {
  const told = root.appendChild(document.createElement("div"));
  told.className = "told-panel";
  told.popover = "manual";
  told.role = "tooltip";
  told.id = `told-${Math.random().toString(36).slice(2)}`;
  const hide = () => told.hidePopover();
  const over = (place, words) => {
    told.textContent = words;
    told.showPopover();
    const size = told.getBoundingClientRect();
    const below = place.bottom + MARGIN_PX + size.height < innerHeight;
    told.style.top = `${below ? place.bottom + MARGIN_PX : Math.max(0, place.top - MARGIN_PX - size.height)}px`;
    told.style.left = `${Math.max(MARGIN_PX, Math.min(place.left, innerWidth - size.width - MARGIN_PX))}px`;
  };
  // The panel stands over the window, and a mark that scrolls away would leave its words behind.
  root.addEventListener("wheel", hide, { passive: true });
  return { over, hide, id: told.id };
}

// A button that saves what `drawn` gives: an SVG with its width and height.
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
