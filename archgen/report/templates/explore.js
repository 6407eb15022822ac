"use strict";
(async () => {
  const asked = JSON.parse(document.getElementById("explore-columns").textContent);
  const part = document.getElementById("plots");
  const sheet = document.getElementById("points");
  const [choices, narrowing] = part.querySelectorAll("form");
  const [cloud, lines] = part.querySelectorAll(".plot");
  const table = sheet.querySelector("table");
  const rows = [...table.tBodies[0].rows];
  const place = new Map([...table.tHead.rows[0].cells].map((head, at) => [head.dataset.name, at]));
  const index = new Map(rows.map((row, at) => [row, at]));
  const NONE = "–", FEW = 12, GEOMETRIC = 20, LINE = 95;
  const SNAP = 1e-9;  // a brush snaps to a value, but for rounding

  // A column by name: what each row shows, its number, and whether all that is there are numbers.
  const made = new Map();
  const column = (name) => {
    if (!made.has(name)) {
      const cells = rows.map((row) => row.cells[place.get(name)]);
      const texts = cells.map((cell) => cell.textContent);
      const numbers = cells.map((cell) => {
        const text = cell.dataset.v ?? cell.textContent.replace(/,/g, "");
        return text.trim() === "" ? NaN : Number(text);
      });
      const known = numbers.filter(Number.isFinite);
      const numeric = known.length > 0 && texts.every((text, at) => text === NONE || text === "" || Number.isFinite(numbers[at]));
      const steps = numeric ? [...new Set(known)].sort((a, b) => a - b)
        : [...new Set(texts)].filter((text) => text && text !== NONE);
      const geometric = numeric && steps[0] > 0 && steps.at(-1) / steps[0] >= (asked.fields.includes(name) ? 4 : GEOMETRIC);
      const { text, unit, said } = asked.columns[name];
      // Few steps of a field are told with their unit, many are not.
      const own = unit || (numeric && asked.fields.includes(name) && steps.length > FEW ? said : "");
      made.set(name, { name, texts, numbers, numeric, steps, geometric, title: own ? `${text} [${own}]` : text });
    }
    return made.get(name);
  };
  const varies = (name) => column(name).steps.length > 1;
  const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  // A swept field has few values, each with a spelling of its own: `64 KiB`.
  const ticks = (values) => {
    if (!asked.fields.includes(values.name) || values.steps.length > FEW) return {};
    const text = (step) => values.texts[values.numbers.indexOf(step)];
    return { tickvals: values.steps, ticktext: values.steps.map(values.numeric ? text : String) };
  };

  const hover = rows.map((row, at) => {
    const said = (name) => {
      const { text, unit } = asked.columns[name];
      const value = column(name).texts[at];
      return value && value !== NONE ? `${escape(text)}: ${escape(value)}${unit ? ` ${unit}` : ""}` : "";
    };
    const head = asked.names.map((name) => column(name).texts[at]).filter((text) => text && text !== NONE);
    const rest = [...asked.fields.filter(varies), ...asked.figures].map(said).filter(Boolean);
    return [`<b>${escape(head[0] ?? "")}</b>`, escape(head.slice(1).join(", ")), ...rest].filter(Boolean).join("<br>");
  });

  const names = [...place.keys()].filter(varies);
  const numeric = names.filter((name) => column(name).numeric);
  const select = (name, options, chosen, none) => {
    const element = choices.elements[name];
    if (none) element.append(new Option(none, ""));
    options.forEach((each) => element.append(new Option(column(each).title, each, each === chosen, each === chosen)));
  };
  const first = (wanted) => wanted.find((name) => names.includes(name));
  const axes = names.filter((name) => column(name).numeric || column(name).steps.length <= 40);
  select("x", axes, first([...asked.lengths, "area", ...asked.fields, "energy", ...numeric]));
  select("y", axes, first(["estimated", "latency", "throughput", ...numeric]));
  select("colour", names.filter((name) => column(name).numeric || column(name).steps.length <= FEW),
    first([...(asked.lengths.some(varies) ? ["machine"] : []), "workload", ...asked.fields, "machine", "status"]), "one colour");
  select("size", numeric, "", "all alike");
  const picked = (name) => choices.elements[name].value;
  const suit = (name) => { choices.elements[`${name}log`].checked = column(picked(name)).geometric; };
  ["x", "y"].forEach(suit);

  for (const name of asked.names.filter(varies)) {
    const label = document.createElement("label");
    const element = document.createElement("select");
    element.name = name;
    element.append(new Option("all", ""), ...column(name).steps.map((step) => new Option(step)));
    label.append(`${asked.columns[name].text} `, element);
    narrowing.prepend(label);
    element.addEventListener("change", () => {
      const { value } = element;
      sheet.narrow(`only-${name}`, value && ((row) => column(name).texts[index.get(row)] === value));
    });
  }

  let brushed = null, ranges = new Map();
  const inRanges = (row) => [...ranges].every(([name, spans]) => {
    const at = position(column(name))[index.get(row)];
    return spans.some(([low, high]) => low - SNAP * Math.abs(low) <= at && at <= high + SNAP * Math.abs(high));
  });
  const brush = (found) => {
    brushed = found;
    sheet.narrow("brush", found && ((row) => found.has(index.get(row))));
  };

  // Where values lie on a line across: steps of a field at equal distances, as they are in files.
  const placed = new Map();
  const position = (values) => {
    if (!placed.has(values.name)) {
      const steps = new Map(values.steps.map((step, at) => [step, at]));
      const from = values.numeric ? values.numbers : values.texts;
      placed.set(values.name, stepped(values) ? from.map((value) => steps.get(value) ?? NaN) : values.numbers);
    }
    return placed.get(values.name);
  };
  const stepped = (values) => !values.numeric || (asked.fields.includes(values.name) && values.steps.length <= FEW);

  const SCALE = [[0, "#2f78c4"], [0.5, "#9a6fb0"], [1, "#d1691c"]];
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star"];
  const sizes = (name) => {
    if (!name) return () => 9;
    const { numbers, steps } = column(name);
    const [least, most] = [steps[0], steps.at(-1)];
    return (at) => Number.isFinite(numbers[at]) ? 6 + 18 * Math.sqrt((numbers[at] - least) / (most - least)) : 4;
  };
  // Of more than a decade 1, 2 and 5 have numbers, of many the powers of ten: others would overlap.
  const decades = ({ steps }) => {
    const count = Math.log10(steps.at(-1) / steps.find((step) => step > 0));
    return count > 4 ? { dtick: 1 } : count > 1 ? { dtick: "D2", tickformat: "~g" } : {};
  };
  const axis = (name, log) => {
    const values = column(name);
    const type = !values.numeric ? "category" : log ? "log" : "linear";
    const few = type === "log" ? { ...decades(values), ...ticks(values) } : ticks(values);
    return { title: { text: escape(values.title) }, type, automargin: true, zeroline: false, ...few };
  };
  const bar = (values) => {
    const few = ticks(values);
    return { title: { text: escape(values.title), side: "right" }, thickness: 12, outlinewidth: 0, ...few };
  };

  // The points that no other beats in both figures, of one network: others cannot be compared.
  const front = (shown, x, y) => {
    const sign = (name) => asked.less.includes(name) ? 1 : asked.more.includes(name) ? -1 : 0;
    const [sx, sy] = [sign(x), sign(y)];
    const networks = new Set(shown.map((at) => column("workload").texts[at]));
    if (!sx || !sy || x === y || networks.size > 1) return [];
    const ordered = [...shown].sort((a, b) => sx * (column(x).numbers[a] - column(x).numbers[b])
      || sy * (column(y).numbers[a] - column(y).numbers[b]));
    let best = Infinity;
    const kept = ordered.filter((at) => {
      const value = sy * column(y).numbers[at];
      return value < best && (best = value, true);
    });
    return [{ type: "scatter", mode: "lines", x: kept.map((at) => column(x).numbers[at]),
      y: kept.map((at) => column(y).numbers[at]), line: { shape: sx > 0 ? "hv" : "vh", width: 1, color: "#888888" },
      hoverinfo: "skip", name: "beaten by none in both" }];
  };

  const value = (name) => column(name).numeric ? column(name).numbers : column(name).texts;
  const groups = (shown, name) => {
    const values = name ? column(name) : null;
    if (!values || values.numeric) return [["", shown]];
    return values.steps.map((step) => [step, shown.filter((at) => values.texts[at] === step)]);
  };
  const colours = (members, name, order) => {
    if (!name || !column(name).numeric) return { color: asked.palette[order % asked.palette.length] };
    const values = column(name);
    const log = values.geometric && asked.fields.includes(name);
    const scaled = (number) => log ? Math.log10(number) : number;
    const few = ticks(values);
    if (few.tickvals) few.tickvals = few.tickvals.map(scaled);
    return { color: members.map((at) => scaled(values.numbers[at])), colorscale: SCALE, showscale: true,
      cmin: scaled(values.steps[0]), cmax: scaled(values.steps.at(-1)), colorbar: { ...bar(values), ...few } };
  };

  const look = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    font: { family: getComputedStyle(document.body).fontFamily, size: 13 },
    modebar: { bgcolor: "rgba(0,0,0,0)" },
  };
  const settings = {
    responsive: true, displaylogo: false, scrollZoom: false,
    // What a study says stays in its file: nothing is offered to be sent anywhere.
    showSendToCloud: false, plotlyServerURL: "",
    modeBarButtonsToRemove: ["autoScale2d", "zoomIn2d", "zoomOut2d"],
  };
  // Over a length points are joined, where each has its own: one machine's run of one network.
  const joined = (members, x) => {
    const places = members.map((at) => column(x).numbers[at]);
    if (!asked.lengths.includes(x) || new Set(places).size < places.length) return "markers";
    members.sort((a, b) => column(x).numbers[a] - column(x).numbers[b]);
    return "lines+markers";
  };
  const drawCloud = () => {
    const [x, y, colour] = ["x", "y", "colour"].map(picked);
    const has = (name, at) => column(name).numeric ? Number.isFinite(column(name).numbers[at]) : true;
    const shown = sheet.passing("brush", "ranges").map((row) => index.get(row)).filter((at) => has(x, at) && has(y, at));
    const kept = new Set(sheet.passing().map((row) => index.get(row)));
    const size = sizes(picked("size"));
    const traces = groups(shown, colour).map(([name, members], order) => ({
      type: "scatter", mode: joined(members, x), name, customdata: members, text: members.map((at) => hover[at]),
      x: members.map((at) => value(x)[at]), y: members.map((at) => value(y)[at]),
      hovertemplate: "%{text}<extra></extra>",
      marker: { ...colours(members, colour, order), size: members.map(size),
        symbol: SYMBOLS[order % SYMBOLS.length], opacity: 0.85 },
      selectedpoints: brushed || ranges.size ? members.flatMap((at, n) => kept.has(at) ? [n] : []) : null,
      unselected: { marker: { opacity: 0.12 } },
    }));
    const layout = { ...look, height: 460, margin: { l: 60, r: 20, t: 30, b: 50 }, dragmode: "select", hovermode: "closest",
      xaxis: axis(x, choices.elements.xlog.checked), yaxis: axis(y, choices.elements.ylog.checked),
      selections: cloud.layout?.selections ?? [], uirevision: `${x} ${y}` };
    legend(traces);
    return Plotly.react(cloud, [...front(shown, x, y), ...traces], layout, settings);
  };
  const MARKS = { circle: "●", square: "■", diamond: "◆", "triangle-up": "▲", "triangle-down": "▼", cross: "✚", x: "✖", star: "★" };
  const legend = (traces) => {
    const target = document.getElementById("plot-legend");
    target.replaceChildren(...(traces.length > 1 ? traces : []).map((trace) => {
      const entry = document.createElement("span");
      const mark = document.createElement("i");
      mark.style.color = trace.marker.color;
      mark.textContent = MARKS[trace.marker.symbol];
      entry.append(mark, ` ${trace.name}`);
      return entry;
    }));
  };

  const across = () => [...new Set([...asked.fields, picked("x"), picked("y"), ...asked.figures.slice(0, 4)])]
    .filter((name) => names.includes(name) && (column(name).numeric || column(name).steps.length <= FEW)).slice(0, 12);
  const drawLines = () => {
    const dimensions = across();
    const shown = sheet.passing("ranges").map((row) => index.get(row))
      .filter((at) => dimensions.every((name) => Number.isFinite(position(column(name))[at])));
    const colour = picked("colour") || picked("y");
    const values = column(colour);
    const line = values.numeric ? colours(shown, colour, 0) : { color: shown.map((at) => values.steps.indexOf(values.texts[at])),
      cmin: -0.5, cmax: values.steps.length - 0.5, colorscale: bands(values.steps.length) };
    const trace = { type: "parcoords", line: { ...line, showscale: false }, labelangle: -12, labelside: "top",
      unselected: { line: { color: "#888888", opacity: 0.15 } },
      dimensions: dimensions.map((name) => {
        const own = column(name);
        const few = stepped(own) ? { tickvals: own.steps.map((_, at) => at),
          ticktext: own.numeric ? ticks(own).ticktext : own.steps, range: [-0.25, own.steps.length - 0.75] } : {};
        return { label: escape(own.title), values: shown.map((at) => position(own)[at]), constraintrange: ranges.get(name), ...few };
      }) };
    const least = LINE * dimensions.length;  // narrower pages scroll, so that names of axes stay apart
    const width = least > lines.clientWidth ? { width: least } : {};
    return Plotly.react(lines, [trace], { ...look, ...width, height: 400, margin: { l: 70, r: 50, t: 70, b: 30 } }, settings);
  };
  const bands = (count) => Array.from({ length: count }, (_, at) => asked.palette[at % asked.palette.length])
    .flatMap((colour, at) => [[at / count, colour], [(at + 1) / count, colour]]);

  const told = () => {
    const left = sheet.passing().length;
    narrowing.querySelector("output").textContent = left === rows.length ? `${left} points` : `${left} of ${rows.length} points`;
  };

  const follow = (at) => {
    const link = rows[at].querySelector("a");
    if (!link) return;
    if (location.hash === link.hash) dispatchEvent(new HashChangeEvent("hashchange"));
    else location.hash = link.hash;
  };

  const inflate = async (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  };
  const script = document.createElement("script");
  script.textContent = await inflate(document.getElementById("plot-library").textContent.trim());
  document.head.append(script);
  part.hidden = false;
  told();
  await drawCloud();
  await drawLines();

  cloud.on("plotly_selected", (event) => {
    const found = (event?.points ?? []).map((point) => point.customdata).filter(Number.isInteger);
    brush(found.length ? new Set(found) : null);
  });
  cloud.on("plotly_deselect", () => brush(null));
  cloud.on("plotly_click", (event) => { if (event.points.length) follow(event.points[0].customdata); });
  lines.on("plotly_restyle", () => {
    const spans = (range) => Array.isArray(range[0]) ? range : [range];
    const found = across().map((name, at) => [name, lines.data[0].dimensions[at].constraintrange]);
    ranges = new Map(found.filter(([, range]) => range?.length).map(([name, range]) => [name, spans(range)]));
    sheet.narrow("ranges", ranges.size ? inRanges : null);
  });
  // What one act narrows in several ways is drawn once.
  const due = new Set();
  sheet.addEventListener("narrowed", ({ detail }) => {
    if (!due.size) queueMicrotask(() => {
      const both = due.has("lines");
      due.clear();
      told();
      drawCloud();
      if (both) drawLines();
    });
    due.add("points");
    if (detail !== "ranges" || !ranges.size) due.add("lines");
  });
  choices.addEventListener("change", ({ target }) => {
    if (target.name === "x" || target.name === "y") {
      suit(target.name);
      cloud.layout.selections = [];
    }
    drawCloud();
    drawLines();
  });
  narrowing.addEventListener("reset", () => {
    ranges = new Map();
    cloud.layout.selections = [];
    asked.names.forEach((name) => sheet.narrow(`only-${name}`, null));
    const input = sheet.querySelector(".tools input");
    input.value = "";
    input.dispatchEvent(new Event("input"));
    sheet.narrow("ranges", null);
    brush(null);
  });

  // A sheet of paper is narrower than most windows.
  const PAPER = 680;
  addEventListener("beforeprint", () => [cloud, lines].forEach((plot) => Plotly.relayout(plot, { width: PAPER })));
  addEventListener("afterprint", () => {
    Plotly.relayout(cloud, { autosize: true, width: null });
    drawLines();  // whose width has a least one
  });
})();
