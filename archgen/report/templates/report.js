"use strict";
(() => {
  const comparison = /^([\w.:-]+)(<=|>=|<|>|=)(-?[\d.,]+%?)$/;
  const collator = new Intl.Collator("en", { numeric: true });

  // A cell's number, or NaN: what it sorts by where the page says so, else its text.
  const number = (cell) => {
    const text = cell.dataset.v ?? cell.textContent.replace(/,/g, "");
    return text.trim() === "" ? NaN : Number(text);
  };
  const missing = (cell) => cell.textContent.trim() === "" || cell.textContent.trim() === "–";

  const sorted = (rows, column, numeric, sign) => rows
    .map((row, place) => ({ row, place, cell: row.cells[column] }))
    .sort((a, b) => {
      const gaps = missing(a.cell) - missing(b.cell);
      if (gaps !== 0) return gaps;
      const [x, y] = [number(a.cell), number(b.cell)];
      const by = numeric || (!Number.isNaN(x) && !Number.isNaN(y))
        ? x - y : collator.compare(a.cell.textContent, b.cell.textContent);
      return by ? sign * by : a.place - b.place;
    })
    .map((each) => each.row);

  const sortable = (table) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const numeric = head.classList.contains("n");
        const before = head.getAttribute("aria-sort");
        const first = numeric ? "descending" : "ascending";
        const other = numeric ? "ascending" : "descending";
        const order = before === first ? other : first;
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order);
        const body = table.tBodies[0];
        body.append(...sorted([...body.rows], column, numeric, order === "ascending" ? 1 : -1));
      });
    });
  };

  // One word of a filter as a test of a row: `latency<2` compares, anything else is looked for.
  const test = (word, names) => {
    const found = comparison.exec(word);
    const column = found ? names.findIndex((name) => name.startsWith(found[1])) : -1;
    if (column < 0) return (row) => row.textContent.toLowerCase().includes(word);
    const share = found[3].endsWith("%") ? 0.01 : 1;
    const bound = share * Number(found[3].replace(/[,%]/g, ""));
    const compare = {
      "<": (v) => v < bound, ">": (v) => v > bound, "=": (v) => v === bound,
      "<=": (v) => v <= bound, ">=": (v) => v >= bound,
    }[found[2]];
    return (row) => !missing(row.cells[column]) && compare(number(row.cells[column]));
  };

  // Tests by name hide the rows of a table that do not pass them all: one is the filter above it.
  const narrowable = (sheet, table) => {
    const tests = new Map();
    const all = [...table.tBodies[0].rows];
    const output = sheet.querySelector(".tools output");
    const passes = (row, besides) => [...tests].every(([name, test]) => besides.includes(name) || test(row));
    sheet.passing = (...besides) => all.filter((row) => passes(row, besides));
    sheet.narrow = (name, test) => {
      if (test) tests.set(name, test); else tests.delete(name);
      let left = 0;
      all.forEach((row) => { row.hidden = !passes(row, []); left += !row.hidden; });
      if (output) output.textContent = left === all.length ? `${left} rows` : `${left} of ${all.length} rows`;
      sheet.dispatchEvent(new CustomEvent("narrowed", { detail: name }));
    };
  };

  const filterable = (sheet, table) => {
    const tools = sheet.querySelector(".tools");
    if (!tools) return;
    const input = tools.querySelector("input");
    const names = [...table.tHead.rows[0].cells].map((head) => head.dataset.name.toLowerCase());
    tools.hidden = false;
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const tests = words.map((word) => test(word, names));
      sheet.narrow("text", tests.length ? (row) => tests.every((passes) => passes(row)) : null);
    });
  };

  document.querySelectorAll(".sheet").forEach((sheet) => {
    const table = sheet.querySelector("table");
    sortable(table);
    narrowable(sheet, table);
    filterable(sheet, table);
  });

  const themes = { "": "as the system", light: "light", dark: "dark" };
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const show = () => { button.querySelector("span").textContent = themes[root.dataset.theme ?? ""]; };
  button.hidden = false;
  show();
  button.addEventListener("click", () => {
    const order = Object.keys(themes);
    root.dataset.theme = order[(order.indexOf(root.dataset.theme ?? "") + 1) % order.length];
    try { localStorage.setItem("archgen-theme", root.dataset.theme); } catch (e) { /* file:// may forbid it */ }
    show();
  });

  // What a link leads to may be inside a closed part.
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    if (target) target.scrollIntoView();
    return target;
  };
  addEventListener("hashchange", reveal);
  reveal();
  addEventListener("beforeprint", () => document.querySelectorAll("details.point").forEach((part) => { part.open = true; }));

  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  if ("IntersectionObserver" in window) {
    const seen = new Set();
    const watcher = new IntersectionObserver((entries) => {
      entries.forEach(({ target, isIntersecting }) => seen[isIntersecting ? "add" : "delete"](target.id));
      const current = [...links.keys()].find((id) => seen.has(id));
      links.forEach((link, id) => id === current ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current"));
    });
    links.forEach((_, id) => { const part = document.getElementById(id); if (part) watcher.observe(part); });
  }
})();
