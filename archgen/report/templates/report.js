"use strict";
(() => {
  const comparison = /^([^<>=]+)(<=|>=|<|>|=)(.*)$/;
  const amount = /^(-?[\d.,]*\d(?:e[-+]?\d+)?)(.*)$/;
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

  // How many letters lie between two words.
  const distance = (one, other) => {
    let before = [...Array(other.length + 1).keys()];
    [...one].forEach((letter, at) => {
      const row = [at + 1];
      [...other].forEach((own, n) => row.push(Math.min(before[n + 1] + 1, row[n] + 1, before[n] + (letter !== own))));
      before = row;
    });
    return before.at(-1);
  };
  const guess = (name, names) => {
    const inside = names.filter((known) => name.startsWith(known) || name.endsWith(known) || known.includes(name));
    const away = (known) => distance(name, known);
    const near = inside.length ? inside : names.filter((known) => away(known) <= Math.max(1, name.length / 3));
    const best = near.sort((a, b) => away(a) - away(b))[0];
    return best ? `; did you mean ${best}?` : "";
  };
  const orders = {
    "<": (a, b) => a < b, ">": (a, b) => a > b, "=": (a, b) => a === b,
    "<=": (a, b) => a <= b, ">=": (a, b) => a >= b,
  };

  // A column of a table for filters: its name, the units that an amount may be in, and whether it has numbers.
  const columnsOf = (table) => [...table.tHead.rows[0].cells].map((head, place) => {
    const units = Object.entries(JSON.parse(head.dataset.units ?? '{"":1}'));
    return {
      place, name: head.dataset.name.toLowerCase(), unit: units[0][0], bare: units[0][1],
      units: new Map(units.map(([unit, size]) => [unit.toLowerCase(), size])),
      numeric: [...table.tBodies[0].rows].some(({ cells }) => !missing(cells[place]) && !Number.isNaN(number(cells[place]))),
    };
  });
  const named = (name, columns) => columns.find((column) => column.name === name)
    ?? columns.find((column) => column.name.startsWith(name));

  // A comparison such as `latency<2ms` as a test of a row, or what is wrong with it.
  const compared = (name, order, text, columns) => {
    const column = named(name, columns);
    if (!column) return { mistake: `no column ${name}${guess(name, columns.map((each) => each.name))}` };
    if (!column.numeric) return { mistake: `${column.name} has no numbers: look for words alone` };
    const found = amount.exec(text);
    const bare = Number(found?.[1].replace(/,/g, ""));
    if (!found || Number.isNaN(bare)) return { mistake: `${name}${order} needs a number` };
    const size = found[2] ? column.units.get(found[2]) : column.bare;
    if (!size) return { mistake: `${column.name} is ${column.unit ? `in ${column.unit}` : "a plain number"}, not ${found[2]}` };
    // What is equal but for rounding of units is equal.
    const bound = bare * size;
    const near = (value) => Math.abs(value - bound) <= 1e-9 * Math.abs(bound) ? bound : value;
    return { test: ({ cells }) => !missing(cells[column.place]) && orders[order](near(number(cells[column.place])), bound) };
  };

  // The words of a filter, each as a test or a mistake: comparisons compare, others are looked for.
  const parsed = (text, columns, rows) => {
    const words = text.toLowerCase().replace(/\s*([<>=]+)\s*/g, (_, order) => order === "==" ? "=" : order).split(/\s+/).filter(Boolean);
    const within = (word) => (row) => row.textContent.toLowerCase().includes(word);
    const made = [];
    for (let at = 0; at < words.length; at += 1) {
      const [word, found] = [words[at], comparison.exec(words[at])];
      const column = found && named(found[1], columns);
      if (!found || (!column && rows.some(within(word)))) made.push({ test: within(word) });
      else {
        // `1 MiB` is one amount, `1 resnet` is not.
        const apart = column?.units.has(words[at + 1]) && !amount.exec(found[3])?.[2];
        made.push(compared(found[1], found[2], apart ? found[3] + words[at += 1] : found[3], columns));
      }
    }
    return made;
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
    const said = tools.querySelector(".mistake");
    const [columns, rows] = [columnsOf(table), [...table.tBodies[0].rows]];
    tools.hidden = false;
    input.addEventListener("input", () => {
      const found = parsed(input.value, columns, rows);
      const tests = found.map(({ test }) => test).filter(Boolean);
      said.textContent = found.map(({ mistake }) => mistake).filter(Boolean).join("; ");
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
