
// Draws the data of parallel.py: one line per config over vertical axes. Dragging along an axis selects the lines there,
// a click on the axis selects all again. Dragging an axis' name moves the axis.

const HEIGHT_PX = 342;
const TOP_PX = 58;
const BOTTOM_PX = 18;
const SIDE_PX = 60;
const NAMES_PX = [12, 29, 46]; // neighbours take turns where the names are wider than the space between two axes
const NAME_WIDTH_PX = 130;
const DIGIT_PX = 6.5; // of the numbers beside an axis
const GAP_PX = 14; // before and after such a number, to its axis and to the next
const CLICK_PX = 3; // a drag shorter than this is a click

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".parallel");
  root.replaceChildren();
  const frame = root.appendChild(document.createElement("div"));
  frame.className = "wide";
  const svg = frame.appendChild(element("svg", { height: HEIGHT_PX, "font-size": 11, fill: "currentColor" }));
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${data.lines.length} configs over ${data.axes.map((axis) => axis.label).join(", ")}`);
  const count = root.appendChild(document.createElement("small"));
  count.role = "status";
  const tooltip = panel(root);
  // New results keep the current selection, as long as the axes are the same.
  const names = data.axes.map((axis) => axis.label).join();
  if (root.dragged?.names !== names) {
    root.dragged = { names, order: data.axes.map((_, axis) => axis), kept: data.axes.map(() => null) };
  }
  const dragged = root.dragged; // of each axis `kept` has the lowest and the highest place that lines may pass
  const tall = HEIGHT_PX - TOP_PX - BOTTOM_PX;
  const high = (place) => TOP_PX + (1 - place) * tall;
  // If axes were closer, their numbers would cover the next axis, or their names each other.
  const longest = Math.max(0, ...data.axes.flatMap(({ ticks }) => ticks.map(([, words]) => words.length)));
  const leastStep = Math.max(longest * DIGIT_PX + GAP_PX, NAME_WIDTH_PX / NAMES_PX.length);

  const filter = () => {
    const passes = ({ at }) => dragged.kept.every((range, axis) => !range || (at[axis] >= range[0] && at[axis] <= range[1]));
    const lines = [...svg.querySelectorAll("polyline")];
    data.lines.forEach((line, place) => lines[place].classList.toggle("out", !passes(line)));
    const passing = data.lines.filter(passes).length;
    count.textContent = `${passing.toLocaleString("en")} of ${data.lines.length.toLocaleString("en")} configs`;
  };

  let drawn = 0; // the width of the page that it was drawn for
  const draw = () => {
    drawn = root.clientWidth;
    if (!drawn) return; // in a part of the page that is closed
    svg.replaceChildren();
    const spaces = Math.max(dragged.order.length - 1, 1);
    const step = Math.max((drawn - 2 * SIDE_PX) / spaces, leastStep);
    const wide = step * spaces + 2 * SIDE_PX;
    svg.setAttribute("viewBox", `0 0 ${wide} ${HEIGHT_PX}`);
    svg.setAttribute("width", wide);
    frame.tabIndex = wide > drawn ? 0 : -1; // the arrow keys scroll it
    const lines = element("g", { fill: "none", "stroke-width": 1, "stroke-opacity": 0.75 });
    const across = dragged.order.map((_, i) => (SIDE_PX + i * step).toFixed(1));
    // One string, which the browser parses at once. Positions and colours are numbers from parallel.py.
    lines.innerHTML = data.lines
      .map(({ at, colour }) => {
        const points = dragged.order.map((axis, i) => `${across[i]},${high(at[axis]).toFixed(1)}`).join(" ");
        return `<polyline points="${points}" stroke="${colour}"/>`;
      })
      .join("");
    const of = new Map([...lines.children].map((line, place) => [line, data.lines[place]]));
    lines.addEventListener("pointermove", ({ target, clientX, clientY }) => {
      if (of.has(target)) tooltip.show(new DOMRect(clientX, clientY, 0, 0), of.get(target).hint);
    });
    lines.addEventListener("pointerout", tooltip.hide);
    svg.append(lines, ...dragged.order.map((axis, i) => upright(axis, SIDE_PX + i * step, step)));
    filter();
  };

  const upright = (axis, x, step) => {
    const { label, ticks } = data.axes[axis];
    const group = element("g", { transform: `translate(${x} 0)` });
    group.append(element("line", { y1: TOP_PX, y2: TOP_PX + tall, stroke: "currentColor", "stroke-opacity": 0.6 }));
    for (const [place, words] of ticks) group.append(text(words, { x: 6, y: high(place), "dominant-baseline": "central" }));
    const lines = Math.min(Math.ceil(NAME_WIDTH_PX / step), NAMES_PX.length);
    const y = NAMES_PX[dragged.order.indexOf(axis) % lines];
    const name = text(label, { class: "name", y, "text-anchor": "middle", "font-size": 12 });
    name.addEventListener("pointerdown", (event) => {
      name.setPointerCapture(event.pointerId);
      name.onpointermove = (moved) => group.setAttribute("transform", `translate(${x + moved.clientX - event.clientX} 0)`);
      name.onpointerup = (moved) => {
        const places = Math.round((moved.clientX - event.clientX) / step);
        const to = Math.max(0, Math.min(dragged.order.indexOf(axis) + places, dragged.order.length - 1));
        dragged.order = dragged.order.filter((each) => each !== axis);
        dragged.order.splice(to, 0, axis);
        draw();
      };
    });
    group.append(name, ...brush(axis, label));
    return group;
  };

  const brush = (axis, label) => {
    const range = element("rect", { x: -7, width: 14, fill: "#8a94a3", "fill-opacity": 0.45, stroke: "currentColor" });
    const show = () => {
      const [low, top] = dragged.kept[axis] ?? [0, 0];
      range.setAttribute("y", high(top));
      range.setAttribute("height", dragged.kept[axis] ? high(low) - high(top) : 0);
      range.setAttribute("visibility", dragged.kept[axis] ? "visible" : "hidden");
    };
    const area = element("rect", { class: "brush", x: -12, y: TOP_PX - 6, width: 24, height: tall + 12, fill: "transparent" });
    area.append(element("title", {}));
    area.firstChild.textContent = `Drag to keep the configs in a range of ${label}; a click keeps all`;
    const place = (event) => {
      const up = (event.clientY - svg.getBoundingClientRect().top - TOP_PX) / tall;
      return Math.max(0, Math.min(1 - up, 1));
    };
    area.addEventListener("pointerdown", (event) => {
      area.setPointerCapture(event.pointerId);
      const from = place(event);
      area.onpointermove = (moved) => {
        const to = place(moved);
        dragged.kept[axis] = Math.abs(moved.clientY - event.clientY) < CLICK_PX ? null : [Math.min(from, to), Math.max(from, to)];
        show();
        filter();
      };
      area.onpointerup = (moved) => {
        area.onpointermove(moved);
        area.onpointermove = area.onpointerup = null;
      };
    });
    show();
    return [range, area];
  };

  // Lines pass behind the words of an axis. An outline in the page's background colour keeps the words readable.
  const text = (words, attributes) => {
    const background = getComputedStyle(root).getPropertyValue("--st-background-color") || "#ffffff";
    const made = element("text", { stroke: background, "stroke-width": 3, "paint-order": "stroke", ...attributes });
    made.textContent = words;
    return made;
  };

  root.resized?.disconnect();
  root.resized = new ResizeObserver(() => root.clientWidth !== drawn && draw()); // it calls once without a change too
  root.resized.observe(root);
  draw();
  saves(root, data, () => {
    const copy = svg.cloneNode(true);
    copy.querySelectorAll("polyline.out").forEach((line) => line.setAttribute("stroke-opacity", 0.05));
    const { color, fontFamily } = getComputedStyle(root);
    copy.setAttribute("color", color);
    copy.setAttribute("font-family", fontFamily);
    copy.prepend(paper(root, svg.getAttribute("width"), HEIGHT_PX));
    return copy;
  });
  return () => root.resized.disconnect();
}
