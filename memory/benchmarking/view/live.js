// Updates the pages of `membench view`: filters act at once, and running benchmarks show their progress. The server
// builds all HTML. This script fetches the page again and replaces the elements that have data-live.
(() => {
  "use strict";
  const EVERY_MS = 2000; // rare enough not to disturb a benchmark on this machine
  const TYPING_MS = 150; // pause in typing before a filter is applied
  const body = document.body;
  const filters = document.querySelector("[data-filters]");
  let tag = null; // ETag of the last answer
  let asked = 0; // number of the last request: the answers to older ones are dropped

  // The cookie replaces the token, which must not stay in the address bar, the history or a bookmark.
  const address = new URL(location.href);
  if (address.searchParams.has("token")) {
    address.searchParams.delete("token");
    history.replaceState(null, "", address);
  }

  // -- replacing parts ------------------------------------------------------------------------

  const replaceParts = (text) => {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const focused = document.activeElement?.id;
    for (const old of document.querySelectorAll("[data-live]")) {
      const part = fresh.getElementById(old.id);
      if (!part || part.isEqualNode(old)) continue;
      const open = new Set([...old.querySelectorAll("details[open][id]")].map((each) => each.id));
      for (const each of part.querySelectorAll("details[id]")) each.open ||= open.has(each.id);
      old.replaceWith(document.adoptNode(part));
    }
    if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
    document.title = fresh.title;
    if (fresh.body.dataset.refreshes === undefined) delete body.dataset.refreshes;
    else body.dataset.refreshes = "";
    document.dispatchEvent(new Event("replaced"));
    document.dispatchEvent(new Event("charts")); // charts.js adds tooltips and keys to new charts
  };

  const fetchPage = async (url) => {
    const number = ++asked;
    let answer;
    try {
      answer = await fetch(url, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
    } catch {
      return showLost("The server has stopped. Start it again with membench view, and open its new link.");
    }
    if (number !== asked) return;
    if (answer.status === 403) return showLost("Another membench view runs on this port now. Open the link that it printed.");
    hideLost();
    if (answer.status === 304) return;
    const text = await answer.text();
    if (number !== asked) return;
    tag = answer.headers.get("ETag");
    replaceParts(text);
  };

  const showLost = (text) => {
    let note = document.getElementById("lost");
    if (!note) {
      note = document.createElement("p");
      note.id = "lost";
      note.className = "note warn lost";
      note.setAttribute("role", "alert");
      body.append(note);
    }
    if (note.textContent !== text) note.textContent = text;
  };
  const hideLost = () => document.getElementById("lost")?.remove();

  const refresh = async () => {
    if ("refreshes" in body.dataset && document.visibilityState === "visible") await fetchPage(location.href);
    setTimeout(refresh, EVERY_MS);
  };
  setTimeout(refresh, EVERY_MS);
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible" && "refreshes" in body.dataset) fetchPage(location.href);
  });

  // -- the filters -----------------------------------------------------------------------------

  if (filters) {
    let waiting;
    const apply = () => {
      const fields = [...new FormData(filters)].filter(([, value]) => value.trim());
      const url = new URL(filters.action);
      url.search = new URLSearchParams(fields);
      history.replaceState(null, "", url);
      tag = null;
      fetchPage(url);
    };
    for (const each of filters.querySelectorAll("[data-without-scripts]")) each.hidden = true;
    filters.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(apply, TYPING_MS); });
    filters.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(waiting); apply(); });
  }

  // -- choosing runs to compare; the choice stays on other pages and with other filters --------

  const comparing = document.getElementById("comparing");
  if (comparing) {
    const KEY = "membench-chosen";
    const read = () => {
      try { return new Set(JSON.parse(sessionStorage.getItem(KEY) || "[]")); } catch { return new Set(); }
    };
    const chosen = read();
    const boxes = () => document.querySelectorAll('input[name="run"]');
    const show = () => {
      for (const box of boxes()) box.checked = chosen.has(box.value);
      const count = chosen.size;
      document.getElementById("chosen").textContent =
        count === 0 ? "Choose two or more runs to compare"
        : count === 1 ? "1 run chosen; choose another" : `${count} runs chosen`;
      document.getElementById("compare").disabled = count < 2;
      document.getElementById("clear").hidden = count === 0;
      try { sessionStorage.setItem(KEY, JSON.stringify([...chosen])); } catch { /* then it is remembered for this page only */ }
    };
    document.addEventListener("change", (event) => {
      if (event.target.name !== "run") return;
      if (event.target.checked) chosen.add(event.target.value); else chosen.delete(event.target.value);
      show();
    });
    document.getElementById("clear").addEventListener("click", () => {
      chosen.clear();
      show();
      document.getElementById("text")?.focus();
    });
    comparing.addEventListener("submit", (event) => {
      event.preventDefault(); // the form lacks the chosen runs of the other pages of the list
      const url = new URL(comparing.action);
      url.search = new URLSearchParams([...chosen].sort().map((id) => ["run", id]));
      location.assign(url);
    });
    document.addEventListener("replaced", show);
    addEventListener("pageshow", show);
    show();
  }
})();
