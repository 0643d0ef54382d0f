// Adds to the page of the league, which is complete without a script: sorting and filtering of the table, evidence
// of a promise beside the grid, and two systems side by side. Texts are copied as nodes, never as HTML.
(() => {
  "use strict";
  const rowsOf = (table) => [...table.tBodies[0].rows];

  const valueOf = (row, column) => {
    const cell = row.cells[column];
    return column === 0 ? row.dataset.system.toLowerCase() : cell.dataset.value === "" ? null : Number(cell.dataset.value);
  };

  const sortBy = (table, head) => {
    const column = head.cellIndex;
    const before = head.getAttribute("aria-sort");
    // The first click puts the best first.
    const first = head.dataset.better === "higher" ? "descending" : "ascending";
    const order = before === "none" ? first : before === "ascending" ? "descending" : "ascending";
    for (const other of head.parentNode.cells) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const sorted = rowsOf(table).sort((one, other) => {
      const [left, right] = [valueOf(one, column), valueOf(other, column)];
      if (left === null || right === null) return (left === null) - (right === null); // without a figure: last
      return sign * (left < right ? -1 : left > right ? 1 : 0);
    });
    table.tBodies[0].append(...sorted);
  };

  const filter = (table) => {
    const name = document.getElementById("filter-name").value.trim().toLowerCase();
    const durability = document.getElementById("filter-durability").value;
    let shown = 0;
    for (const row of rowsOf(table)) {
      const fits = row.dataset.system.toLowerCase().includes(name) && (!durability || row.dataset.durability === durability);
      row.hidden = !fits;
      shown += fits;
    }
    const all = table.tBodies[0].rows.length;
    document.getElementById("filter-count").textContent = shown === all ? "" : `${shown} of ${all} systems`;
  };

  const showGroup = (table, group, visible) => {
    for (const cell of table.querySelectorAll("[data-group]")) {
      if (cell.dataset.group === group) cell.hidden = !visible;
    }
  };

  // The bounds of a figure's interval; without one, both are the figure.
  const boundsOf = (row, column) => {
    const { value, low, high } = row.cells[column].dataset;
    return [Number(low ?? value), Number(high ?? value)];
  };

  const copyOf = (cell) => [...cell.childNodes].map((node) => node.cloneNode(true));

  const showPair = (table) => {
    const names = [0, 1].map((number) => document.getElementById(`pair-${number}`).value);
    const rows = names.map((name) => rowsOf(table).find((row) => row.dataset.system === name));
    const made = document.createElement("table");
    const head = made.createTHead().insertRow();
    for (const text of ["Axis", ...names]) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = text;
      head.append(cell);
    }
    const body = made.createTBody();
    const heads = [...table.tHead.rows[0].cells];
    for (let column = 1; column < heads.length; column += 1) {
      const row = body.insertRow();
      const title = document.createElement("th");
      title.scope = "row";
      title.textContent = [...heads[column].children].map((each) => each.textContent).join(", ");
      row.append(title);
      const values = rows.map((each) => valueOf(each, column));
      const bounds = rows.map((each) => boundsOf(each, column));
      const better = heads[column].dataset.better;
      rows.forEach((each, number) => {
        const cell = row.insertCell();
        cell.append(...copyOf(each.cells[column]));
        if (values[number] === null) {
          const reason = document.createElement("span");
          reason.className = "fact";
          reason.textContent = each.cells[column].title;
          cell.querySelector("sup")?.remove();
          cell.append(reason);
        } else if (values[1 - number] !== null) {
          const [own, other] = [bounds[number], bounds[1 - number]];
          const isBetter = better === "higher" ? own[0] > other[1] : better === "lower" && own[1] < other[0];
          if (isBetter) cell.className = "better";
        }
      });
    }
    document.getElementById("pair-table").replaceChildren(made);
  };

  const showEvidence = (link) => {
    const place = document.getElementById("evidence");
    const found = document.getElementById(link.dataset.evidence);
    if (!found) return false;
    const title = document.createElement("p");
    const name = document.createElement("strong");
    name.textContent = link.closest("tr").cells[0].textContent;
    title.append(name);
    place.replaceChildren(title, ...copyOf(found));
    place.hidden = false;
    return true;
  };

  // A link to a system, or to a part of it, opens its details.
  const openTarget = () => {
    const found = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const details = found && found.closest("details");
    if (details) {
      details.open = true;
      found.scrollIntoView();
    }
  };

  document.addEventListener("DOMContentLoaded", () => {
    const table = document.getElementById("league-table");
    if (!table) return;
    for (const button of table.querySelectorAll("button.sort")) {
      button.disabled = false;
      button.addEventListener("click", () => sortBy(table, button.closest("th")));
    }
    document.getElementById("controls").hidden = false;
    document.getElementById("filter-name").addEventListener("input", () => filter(table));
    document.getElementById("filter-durability").addEventListener("change", () => filter(table));
    for (const box of document.querySelectorAll("[data-group-switch]")) {
      box.checked = true;
      box.addEventListener("change", () => showGroup(table, box.dataset.groupSwitch, box.checked));
    }
    for (const link of document.querySelectorAll("[data-evidence]")) {
      link.addEventListener("click", (event) => { if (showEvidence(link)) event.preventDefault(); });
    }
    if (table.tBodies[0].rows.length > 1) {
      document.getElementById("pair").hidden = false;
      for (const number of [0, 1]) document.getElementById(`pair-${number}`).addEventListener("change", () => showPair(table));
      showPair(table);
    }
    window.addEventListener("hashchange", openTarget);
    openTarget();
  });
})();
