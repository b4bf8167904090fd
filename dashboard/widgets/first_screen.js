// Reports once that the first screen is shown: settle.js has shown it, and the scripts of its elements have come.

const GREY_BOX = '.stMainBlockContainer [data-testid="stSkeleton"]';

export default function ({ data, setStateValue }) {
  if (data?.shown) return;
  const page = location.pathname;
  let frame = 0;
  // Streamlit answers the later of two requests: a report after a press of Back would bring this page again.
  const report = () => location.pathname === page && setStateValue("shown", true);
  const look = () => {
    const isShown = !document.body.dataset.moving && !document.querySelector(GREY_BOX);
    if (isShown) requestIdleCallback(report);
    else frame = requestAnimationFrame(look);
  };
  look();
  return () => cancelAnimationFrame(frame);
}
