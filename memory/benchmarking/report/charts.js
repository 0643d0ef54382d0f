// What a script adds to charts that are complete without one: the value under the pointer or on the arrow keys,
// and lines and sources that can be switched off. All texts are set as texts.
(() => {
  "use strict";
  const REACH = 40; // pixels around a point
  let told, here;

  const place = () => {
    const box = here.getBoundingClientRect();
    const left = box.left + box.width / 2 - told.offsetWidth / 2;
    const above = box.top - told.offsetHeight - 8;
    told.style.left = `${Math.max(4, Math.min(left, innerWidth - told.offsetWidth - 4))}px`;
    told.style.top = `${above > 4 ? above : box.bottom + 8}px`;
  };

  const tell = (point) => {
    if (here) here.classList.remove("here");
    here = point;
    told.hidden = !point;
    if (!point) return;
    point.classList.add("here");
    told.textContent = point.dataset.text;
    place();
  };

  const middle = (point) => {
    const box = point.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  };
  const visible = (plot) => [...plot.querySelectorAll(".pt")].filter((point) => point.getClientRects().length);

  const nearest = (plot, x, y) => {
    let best = null, distance = REACH;
    for (const point of visible(plot)) {
      const [left, top] = middle(point);
      const away = Math.hypot(left - x, (top - y) * 0.6);
      if (away < distance) [best, distance] = [point, away];
    }
    return best;
  };

  // Left and right go along a line, up and down to the point above or below.
  const step = (plot, key) => {
    const points = visible(plot);
    if (!points.length) return null;
    if (!here || !plot.contains(here)) return points[0];
    const [x, y] = middle(here);
    const line = points.filter((point) => point.parentNode === here.parentNode);
    const place = line.indexOf(here);
    if (key === "ArrowRight") return line[Math.min(place + 1, line.length - 1)];
    if (key === "ArrowLeft") return line[Math.max(place - 1, 0)];
    if (key === "Home") return line[0];
    if (key === "End") return line[line.length - 1];
    const up = key === "ArrowUp";
    const others = points.filter((point) => {
      const top = middle(point)[1];
      return point !== here && (up ? top < y - 0.5 : top > y + 0.5);
    });
    const away = (point) => Math.abs(middle(point)[0] - x) * 3 + Math.abs(middle(point)[1] - y);
    return others.sort((one, other) => away(one) - away(other))[0] || here;
  };

  const prepare = (plot) => {
    for (const point of plot.querySelectorAll(".pt")) {
      const title = point.querySelector("title");
      if (!title) continue;
      point.dataset.text = title.textContent;
      title.remove(); // the browser would show it too
    }
    plot.setAttribute("tabindex", "0");
    for (const kind of ["pointermove", "pointerdown"]) {
      plot.addEventListener(kind, (event) => tell(nearest(plot, event.clientX, event.clientY)));
    }
    plot.addEventListener("pointerleave", () => tell(null));
    plot.addEventListener("blur", () => tell(null));
    plot.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return tell(null);
      if (!/^(Arrow(Left|Right|Up|Down)|Home|End)$/.test(event.key)) return undefined;
      event.preventDefault();
      return tell(step(plot, event.key));
    });
  };

  const enhance = (within) => {
    for (const plot of within.querySelectorAll("svg.plot:not([tabindex])")) prepare(plot);
    for (const key of within.querySelectorAll(".legend button.key:disabled")) key.disabled = false;
  };

  document.addEventListener("DOMContentLoaded", () => {
    told = document.createElement("div");
    told.className = "told";
    told.hidden = true;
    told.setAttribute("role", "status");
    document.body.append(told);
    enhance(document);
    // It stays with its point: focusing a plot by key may scroll, and says so only after the next key.
    addEventListener("scroll", () => { if (here) place(); }, { passive: true });
  });
  document.addEventListener("click", (event) => {
    const key = event.target.closest(".legend button.key");
    if (!key) return;
    const on = key.getAttribute("aria-pressed") !== "true";
    key.setAttribute("aria-pressed", String(on));
    key.closest("figure").classList.toggle(`off-l${key.dataset.key}`, !on);
  });
  document.addEventListener("change", (event) => {
    const box = event.target.closest("[data-source-switch]");
    if (box) document.body.classList.toggle(`off-s${box.dataset.sourceSwitch}`, !box.checked);
  });
  // For pages that bring in charts later on.
  document.addEventListener("charts", (event) => enhance(event.target));
})();
