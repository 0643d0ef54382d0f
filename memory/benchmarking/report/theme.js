// The switch between light and dark: any element with data-theme-switch. Loaded in the head, so that a page
// never shows itself in the other colours first. Listeners hear "themechange" on the document.
(() => {
  "use strict";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const KEY = "membench-theme";

  const stored = () => {
    try { return localStorage.getItem(KEY); } catch { return null; } // storage may be forbidden
  };
  const isDark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const show = () => {
    for (const button of document.querySelectorAll("[data-theme-switch]")) {
      const other = isDark() ? "Light" : "Dark";
      button.textContent = other;
      button.setAttribute("aria-label", `${other} colours`);
      button.hidden = false;
    }
    document.dispatchEvent(new Event("themechange"));
  };

  const wanted = stored();
  if (wanted === "dark" || wanted === "light") root.dataset.theme = wanted;
  system.addEventListener("change", show);
  document.addEventListener("DOMContentLoaded", show);
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-theme-switch]")) return;
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem(KEY, root.dataset.theme); } catch { /* it holds for this page */ }
    show();
  });
})();
