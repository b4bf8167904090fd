// Reports once that the first screen is shown: settle.js has shown it, and the scripts of its elements have come.

const GREY_BOX = '.stMainBlockContainer [data-testid="stSkeleton"]';

export default function ({ data, setStateValue }) {
  if (data?.shown) return;
  let frame = 0;
  const look = () => {
    const isShown = !document.body.dataset.moving && !document.querySelector(GREY_BOX);
    if (isShown) requestIdleCallback(() => setStateValue("shown", true));
    else frame = requestAnimationFrame(look);
  };
  look();
  return () => cancelAnimationFrame(frame);
}
