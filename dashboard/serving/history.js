// Makes what a visitor does one entry of the browser's history, so that Back leads to what was seen before it.
// Streamlit adds one per message (1.67, 2026-11-28): for a link to another page first the new parameters behind the
// address of the page that is left, then the page, then each parameter that the page sets itself.

let acted = false;
for (const kind of ["pointerdown", "keydown", "click"]) addEventListener(kind, () => (acted = true), true);
const add = history.pushState.bind(history);
history.pushState = (...entry) => {
  if (acted) add(...entry);
  else history.replaceState(...entry);
  acted = false;
};

// The tabs lead to the repository that the address names. Streamlit's own tabs (1.67) drop all parameters, so a visitor
// came back to the first repository. An entry of the history is left as by Back, because Streamlit then reads it whole.
const TAB = '[data-testid="stTopNavLink"], [data-testid="stSidebarNavLink"]';
addEventListener(
  "click",
  (event) => {
    const tab = event.target.closest(TAB);
    const repository = new URLSearchParams(location.search).get("repository");
    if (!tab || !repository || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
    history.pushState({}, "", `${tab.href}?${new URLSearchParams({ repository })}`);
    dispatchEvent(new PopStateEvent("popstate"));
  },
  true,
);
