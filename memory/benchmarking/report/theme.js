// Switches between light and dark: a click on any element with data-theme-switch. It is loaded in the head, so
// that a page never flashes in the other colours first.
(() => {
  "use strict";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const KEY = "membench-theme";

  const stored = () => {
    try { return localStorage.getItem(KEY); } catch { return null; } // the browser may forbid storage
  };
  const isDark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const show = () => {
    for (const button of document.querySelectorAll("[data-theme-switch]")) {
      const other = isDark() ? "Light" : "Dark";
      button.textContent = other;
      button.setAttribute("aria-label", `${other} colours`);
      button.hidden = false;
    }
  };

  const wanted = stored();
  if (wanted === "dark" || wanted === "light") root.dataset.theme = wanted;
  system.addEventListener("change", show);
  document.addEventListener("DOMContentLoaded", show);
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-theme-switch]")) return;
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem(KEY, root.dataset.theme); } catch { /* then it is remembered for this page only */ }
    show();
  });
})();
