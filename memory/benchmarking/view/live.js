// Makes the pages of `membench view` follow what happens: filters that act at once, runs that go on. Everything
// is drawn by the server; this fetches the same address again and exchanges the parts that say data-live.
(() => {
  "use strict";
  const EVERY_MS = 2000; // seldom enough not to disturb what is being measured on this machine
  const TYPING_MS = 150;
  const body = document.body;
  const filters = document.querySelector("[data-filters]");
  let tag = null;
  let asked = 0; // answers that come late, after a newer one, are dropped

  // The token has done its work: it must not stay in the address bar, the history or a bookmark.
  const address = new URL(location.href);
  if (address.searchParams.has("token")) {
    address.searchParams.delete("token");
    history.replaceState(null, "", address);
  }

  // -- exchanging parts ------------------------------------------------------------------------

  const exchange = (text) => {
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
    document.dispatchEvent(new Event("exchanged"));
    document.dispatchEvent(new Event("charts")); // charts.js makes new ones answer to pointer and keys
  };

  const fetchPage = async (url) => {
    const number = ++asked;
    let answer;
    try {
      answer = await fetch(url, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
    } catch {
      return lost("The view was ended. Start it again with membench view, and open its new link.");
    }
    if (number !== asked) return;
    if (answer.status === 403) return lost("Another view runs here now. Open the link that it printed.");
    found();
    if (answer.status === 304) return;
    const text = await answer.text();
    if (number !== asked) return;
    tag = answer.headers.get("ETag");
    exchange(text);
  };

  const lost = (text) => {
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
  const found = () => document.getElementById("lost")?.remove();

  const again = async () => {
    if ("refreshes" in body.dataset && document.visibilityState === "visible") await fetchPage(location.href);
    setTimeout(again, EVERY_MS);
  };
  setTimeout(again, EVERY_MS);
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

  // -- choosing runs to compare: the choice outlives pages and filters -------------------------

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
        count === 0 ? "Choose two runs or more to compare them"
        : count === 1 ? "1 run chosen; choose another" : `${count} runs chosen`;
      document.getElementById("compare").disabled = count < 2;
      document.getElementById("clear").hidden = count === 0;
      try { sessionStorage.setItem(KEY, JSON.stringify([...chosen])); } catch { /* it holds for this page */ }
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
      event.preventDefault(); // also runs that are on other pages of the list
      const url = new URL(comparing.action);
      url.search = new URLSearchParams([...chosen].sort().map((id) => ["run", id]));
      location.assign(url);
    });
    document.addEventListener("exchanged", show);
    addEventListener("pageshow", show);
    show();
  }
})();
