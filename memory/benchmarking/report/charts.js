// Adds to charts, which are complete without a script: a tooltip for the point under the pointer or chosen with
// the arrow keys, and hiding of lines and sources. Texts are set with textContent, never as HTML.
(() => {
  "use strict";
  const REACH = 40; // largest distance from the pointer to its point, in pixels
  let tooltip, current;

  const placeTooltip = () => {
    const box = current.getBoundingClientRect();
    const left = box.left + box.width / 2 - tooltip.offsetWidth / 2;
    const above = box.top - tooltip.offsetHeight - 8;
    tooltip.style.left = `${Math.max(4, Math.min(left, innerWidth - tooltip.offsetWidth - 4))}px`;
    tooltip.style.top = `${above > 4 ? above : box.bottom + 8}px`;
  };

  const showTooltip = (point) => {
    if (current) current.classList.remove("here");
    current = point;
    tooltip.hidden = !point;
    if (!point) return;
    point.classList.add("here");
    tooltip.textContent = point.dataset.text;
    placeTooltip();
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

  // Left and right move along a line; up and down move to the nearest point above or below.
  const step = (plot, key) => {
    const points = visible(plot);
    if (!points.length) return null;
    if (!current || !plot.contains(current)) return points[0];
    const [x, y] = middle(current);
    const line = points.filter((point) => point.parentNode === current.parentNode);
    const place = line.indexOf(current);
    if (key === "ArrowRight") return line[Math.min(place + 1, line.length - 1)];
    if (key === "ArrowLeft") return line[Math.max(place - 1, 0)];
    if (key === "Home") return line[0];
    if (key === "End") return line[line.length - 1];
    const up = key === "ArrowUp";
    const others = points.filter((point) => {
      const top = middle(point)[1];
      return point !== current && (up ? top < y - 0.5 : top > y + 0.5);
    });
    const away = (point) => Math.abs(middle(point)[0] - x) * 3 + Math.abs(middle(point)[1] - y);
    return others.sort((one, other) => away(one) - away(other))[0] || current;
  };

  const prepare = (plot) => {
    for (const point of plot.querySelectorAll(".pt")) {
      const title = point.querySelector("title");
      if (!title) continue;
      point.dataset.text = title.textContent;
      title.remove(); // else the browser would show it as a second tooltip
    }
    plot.setAttribute("tabindex", "0");
    for (const kind of ["pointermove", "pointerdown"]) {
      plot.addEventListener(kind, (event) => showTooltip(nearest(plot, event.clientX, event.clientY)));
    }
    plot.addEventListener("pointerleave", () => showTooltip(null));
    plot.addEventListener("blur", () => showTooltip(null));
    plot.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return showTooltip(null);
      if (!/^(Arrow(Left|Right|Up|Down)|Home|End)$/.test(event.key)) return undefined;
      event.preventDefault();
      return showTooltip(step(plot, event.key));
    });
  };

  const enhance = (within) => {
    for (const plot of within.querySelectorAll("svg.plot:not([tabindex])")) prepare(plot);
    for (const key of within.querySelectorAll(".legend button.key:disabled")) key.disabled = false;
  };

  document.addEventListener("DOMContentLoaded", () => {
    tooltip = document.createElement("div");
    tooltip.className = "tooltip";
    tooltip.hidden = true;
    tooltip.setAttribute("role", "status");
    document.body.append(tooltip);
    enhance(document);
    // Keep the tooltip at its point when the page scrolls, as it may when a plot gets the focus.
    addEventListener("scroll", () => { if (current) placeTooltip(); }, { passive: true });
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
  // live.js sends this event after it has put new charts into the page.
  document.addEventListener("charts", (event) => enhance(event.target));
})();
