// Shows the callouts of first_visit.py one at a time, in a corner of the window, and marks what each is about.

const READ = "tilewatch-first-visit";
const MARK = "first-visit-mark";

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".first-visit");
  if (root.firstChild || wasRead()) return; // the page ran again, or the visit is not the first
  const card = root.appendChild(document.createElement("section"));
  card.setAttribute("aria-label", "First visit");
  const count = card.appendChild(document.createElement("small"));
  const words = card.appendChild(document.createElement("p"));
  const next = card.appendChild(document.createElement("button"));
  const skip = card.appendChild(document.createElement("button"));
  let at = -1;
  const unmark = () => document.querySelectorAll(`.${MARK}`).forEach((marked) => marked.classList.remove(MARK));
  const end = () => {
    unmark();
    card.hidden = true;
    try { localStorage.setItem(READ, "yes"); } catch { /* a browser that stores nothing shows it again */ }
  };
  const go = () => {
    at += 1;
    if (at === data.callouts.length) return end();
    unmark();
    const [target, text] = data.callouts[at];
    document.querySelector(target)?.classList.add(MARK);
    count.textContent = `${at + 1} of ${data.callouts.length}`;
    words.textContent = text;
    next.textContent = at + 1 < data.callouts.length ? "Next" : "Done";
    skip.hidden = at + 1 === data.callouts.length;
  };
  skip.textContent = "Skip";
  next.addEventListener("click", go);
  skip.addEventListener("click", end);
  go();
  return unmark;
}

function wasRead() {
  try { return localStorage.getItem(READ) !== null; } catch { return false; }
}
