"use strict";
(() => {
  const timeline = document.querySelector(".timeline");
  const whole = Number(timeline.dataset.seconds);
  let from = 0, until = whole;
  const step = (span) => {
    const rough = span / 8, base = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((m) => m * base).find((s) => s >= rough);
  };
  const draw = () => {
    const span = until - from, share = (s) => ((s - from) / span) * 100;
    for (const svg of timeline.querySelectorAll("svg")) {
      svg.setAttribute("viewBox", `${from} 0 ${span} 100`);
    }
    for (const one of timeline.querySelectorAll("[data-from]")) {
      const left = Number(one.dataset.from), right = Number(one.dataset.until ?? left);
      one.style.left = `${share(left)}%`;
      if (one.dataset.until !== undefined) one.style.width = `${share(right) - share(left)}%`;
      if (one.classList.contains("span")) one.style.paddingLeft = `calc(${Math.max(0, -share(left))}% + 5px)`;
    }
    const axis = timeline.querySelector(".axis"), every = step(span);
    const digits = Math.max(0, -Math.floor(Math.log10(every)));
    axis.replaceChildren();
    for (let s = Math.ceil(from / every) * every; s <= until + 1e-9; s += every) {
      const tick = document.createElement("span");
      tick.textContent = `${s.toFixed(digits)} s`;
      tick.style.left = `${share(s)}%`;
      axis.append(tick);
    }
  };
  const zoom = (factor, at = (from + until) / 2) => {
    const span = Math.min(whole, Math.max(0.2, (until - from) * factor));
    from = Math.min(Math.max(0, at - ((at - from) / (until - from)) * span), whole - span);
    until = from + span;
    draw();
  };
  const move = (share) => {
    const span = until - from;
    from = Math.min(Math.max(0, from + share * span), whole - span);
    until = from + span;
    draw();
  };
  const acts = { in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.4), right: () => move(0.4),
    all: () => zoom(1e9) };
  for (const button of document.querySelectorAll(".zoom button")) {
    button.addEventListener("click", () => acts[button.dataset.act]());
  }
  const second = (event) => {
    const box = timeline.querySelector(".axis").getBoundingClientRect();
    return from + ((event.clientX - box.left) / box.width) * (until - from);
  };
  let drag = null;
  timeline.addEventListener("pointerdown", (event) => { drag = second(event); });
  window.addEventListener("pointerup", (event) => {
    if (drag === null) return;
    const a = Math.max(0, Math.min(drag, second(event))), b = Math.min(whole, Math.max(drag, second(event)));
    drag = null;
    if (b - a > (until - from) / 100) { from = a; until = Math.max(b, a + 0.2); draw(); }
  });
  timeline.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, second(event));
  }, { passive: false });
  draw();
})();
