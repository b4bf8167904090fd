// Saves the cards of scoreboard.py as one picture: what stands on the page, side by side.

export default function ({ data }) {
  return follow(data, (root) => {
    fill(root, data.drawings);
    root.querySelector(".save-picture")?.remove();
    saves(root, data, () => drawnCards(root));
  });
}

const PICTURE_WIDTH_PX = 620;
const PICTURE_HEIGHT_PX = 300;

function drawnCards(root) {
  const cards = [...root.querySelectorAll(".card")];
  const width = PICTURE_WIDTH_PX * cards.length;
  const ink = getComputedStyle(root);
  const svg = element("svg", { width, height: PICTURE_HEIGHT_PX, color: ink.color, "font-family": ink.fontFamily });
  svg.append(paper(root, width, PICTURE_HEIGHT_PX));
  cards.forEach((card, i) => {
    const x = PICTURE_WIDTH_PX * i + 20;
    const write = (selector, y, size, weight) => {
      const words = element("text", { x, y, "font-size": size, "font-weight": weight, fill: ink.color });
      words.textContent = card.querySelector(selector).textContent;
      svg.append(words);
    };
    write("h2", 30, 18, 600);
    write("b", 84, 46, 650);
    write(".distance", 112, 16, 400);
    write(".share", 136, 14, 400);
    const line = card.querySelector("svg")?.cloneNode(true);
    if (!line) return;
    line.setAttribute("x", x);
    line.setAttribute("y", 148);
    line.setAttribute("width", PICTURE_WIDTH_PX - 40);
    line.setAttribute("height", 152);
    svg.append(line);
  });
  return svg;
}
