"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const data = JSON.parse(document.getElementById("data").textContent);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const show3 = (value) => (Number.isFinite(value) ? value.toFixed(3) : "-");

  // Exact values on hover and focus: the words are in each mark's <title>, for readers without script.
  const tip = document.getElementById("tip");
  const say = (mark) => {
    for (const lit of all(".lit")) lit.classList.remove("lit");
    if (!mark) { tip.style.visibility = "hidden"; return; }
    mark.classList.add("lit");
    tip.textContent = mark.dataset.tip;
    const box = mark.getBoundingClientRect(), own = tip.getBoundingClientRect();
    const x = Math.min(Math.max(8, box.left + box.width / 2 - own.width / 2), innerWidth - own.width - 8);
    const y = box.top - own.height - 8;
    tip.style.left = `${x}px`;
    tip.style.top = `${y < 8 ? box.bottom + 8 : y}px`;
    tip.style.visibility = "visible";
  };
  const prepare = (svg) => {
    for (const title of all("title", svg)) {
      title.parentNode.dataset.tip = title.textContent;
      title.remove();
    }
    if (svg.closest("td, .leadstrip") || !svg.querySelector("[data-tip]") || svg.hasAttribute("tabindex")) return;
    svg.setAttribute("tabindex", "0");
    svg.setAttribute("role", "group");
    svg.setAttribute("aria-roledescription", "figure; arrow keys step through its points");
  };
  all("main svg").forEach(prepare);
  document.addEventListener("pointerover", (event) => say(event.target.closest("[data-tip]")));
  document.addEventListener("focusin", (event) => {
    if (event.target.matches("svg") && event.target.matches(":focus-visible")) say(event.target.querySelector("[data-tip]"));
  });
  document.addEventListener("focusout", () => say(null));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") say(null);
    const svg = document.activeElement.closest("svg");
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!svg || !step) return;
    const marks = all("[data-tip]", svg);
    const now = marks.findIndex((mark) => mark.classList.contains("lit"));
    say(marks[(now + step + marks.length) % marks.length]);
    event.preventDefault();
  });

  // One model at a time.
  const chooser = document.getElementById("show-cell");
  const choose = (key) => all(".cell").forEach((cell) => { cell.hidden = cell.dataset.cell !== key; });
  if (chooser) {
    chooser.addEventListener("change", () => choose(chooser.value));
    choose(chooser.value);
    for (const link of all("a[data-show]")) {
      link.addEventListener("click", () => { chooser.value = link.dataset.show; choose(chooser.value); });
    }
  }

  // Sorting.
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.value ?? cell.textContent.trim();
    const number = parseFloat(text.replace(/,/g, "").replace("<", ""));
    return Number.isNaN(number) ? text.toLowerCase() : number;
  };
  const compare = (a, b) => {
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return a < b ? -1 : a > b ? 1 : 0;
  };
  for (const table of all("table.sortable")) {
    all("thead th", table).forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        all("th[aria-sort]", table).forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...table.tBodies[0].rows];
        rows.sort((a, b) => (down ? -1 : 1) * compare(valueOf(a, column), valueOf(b, column)));
        table.tBodies[0].append(...rows);
      });
    });
  }

  // Filters of the table of methods.
  const dots = document.getElementById("dots");
  const filters = ["cell", "method", "stratum"].map((name) => document.getElementById(`filter-${name}`));
  const filter = () => {
    const [cell, method, stratum] = filters.map((control) => (control ? control.value : ""));
    let shown = 0;
    for (const row of dots.tBodies[0].rows) {
      row.hidden = (cell && row.dataset.cell !== cell) || (method && row.dataset.method !== method) || false;
      shown += !row.hidden;
    }
    for (const part of all("[data-stratum]", dots)) part.hidden = Boolean(stratum) && part.dataset.stratum !== stratum;
    const total = dots.tBodies[0].rows.length;
    document.getElementById("shown").textContent = shown < total ? `${shown} of ${total} rows` : "";
  };
  for (const control of filters) if (control) control.addEventListener("change", filter);
  if (chooser && dots.tBodies[0].rows.length > 60) { // too many to begin with: those of the model shown
    const follow = () => { filters[0].value = chooser.value; filter(); };
    chooser.addEventListener("change", follow);
    follow();
  }

  const save = (blob, name) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  // Cases: filter and download. Text that a spreadsheet would run is made plain text.
  const csv = (text) => {
    const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
  };
  for (const button of all("button.export")) {
    const table = button.closest(".cell").querySelector("table.cases");
    const select = button.closest(".cell").querySelector(".case-stratum");
    if (select) {
      const rows = [...table.tBodies[0].rows];
      const only = () => { for (const row of rows) row.hidden = Boolean(select.value) && row.dataset.stratum !== select.value; };
      if (!rows.some((row) => row.dataset.stratum === select.value)) select.value = "";
      select.addEventListener("change", only);
      only();
    }
    button.addEventListener("click", () => {
      const rows = [table.tHead.rows[0], ...[...table.tBodies[0].rows].filter((row) => !row.hidden)];
      const skip = all("thead th", table).findIndex((head) => head.textContent.trim() === "Image");
      const text = rows.map((row) => [...row.cells].filter((_, i) => i !== skip)
        .map((cell) => csv(cell.dataset.csv ?? cell.textContent.trim())).join(",")).join("\n") + "\n";
      save(new Blob([text], { type: "text/csv" }), "cases.csv");
    });
  }

  // Reliability diagrams, computed anew from the cases in the page.
  const unpack = (text, Kind) => new Kind(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  const opened = new Map();
  const open = (key, method) => {
    const name = JSON.stringify([key, method]);
    if (!opened.has(name)) {
      const cell = data.cells[key], arrays = cell.methods[method];
      opened.set(name, {
        p: unpack(arrays.p, Float64Array), y: unpack(arrays.y, Uint8Array), stratum: unpack(cell.stratum, Uint8Array), nulls: new Map(),
      });
    }
    return opened.get(name);
  };
  const binOf = (p, bins) => {
    let k = Math.floor(p * bins);
    if ((k + 1) / bins <= p) k += 1; else if (k / bins > p) k -= 1;
    return Math.min(k, bins - 1);
  };
  // Law of the number of positives among cases with these probabilities: mean distance and 5 to 95 % range.
  const law = (ps) => {
    let mean = 0, variance = 0;
    for (const p of ps) { mean += p; variance += p * (1 - p); }
    if (ps.length > 300) {
      const sd = Math.sqrt(variance);
      return { distance: sd * Math.sqrt(2 / Math.PI), low: Math.max(0, mean - 1.645 * sd), high: Math.min(ps.length, mean + 1.645 * sd) };
    }
    const chance = new Float64Array(ps.length + 1);
    chance[0] = 1;
    ps.forEach((p, i) => { for (let k = i + 1; k >= 0; k--) chance[k] = chance[k] * (1 - p) + (k ? chance[k - 1] * p : 0); });
    let distance = 0, sum = 0, low = -1, high = -1;
    for (let k = 0; k <= ps.length; k++) {
      distance += chance[k] * Math.abs(k - mean);
      sum += chance[k];
      if (low < 0 && sum >= 0.05) low = k;
      if (high < 0 && sum >= 0.95) high = k;
    }
    return { distance, low, high: high < 0 ? ps.length : high };
  };
  const random = (seed) => () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  // Selection-aware null: labels drawn from p, strata from the nearest cases with that label.
  const selectionNull = (cases, nStrata, bins) => {
    if (cases.nulls.has(bins)) return cases.nulls.get(bins);
    const { p, y, stratum } = cases, n = p.length, next = random(1), draws = Math.max(20, Math.min(300, Math.floor(3e6 / n)));
    const logit = Float64Array.from(p, (v) => Math.max(-36, Math.min(36, Math.log(v) - Math.log1p(-v))) + 1e-7 * (next() - 0.5));
    const near = [0, 1].map((label) => {
      const rows = [];
      for (let i = 0; i < n; i++) if (y[i] === label) rows.push(i);
      rows.sort((a, b) => logit[a] - logit[b]);
      const k = Math.min(20, rows.length), start = new Int32Array(n);
      for (let i = 0; i < n && k; i++) {
        let lo = 0, hi = rows.length - k;
        while (lo < hi) {
          const mid = (lo + hi) >> 1;
          if (logit[i] - logit[rows[mid]] > logit[rows[mid + k]] - logit[i]) lo = mid + 1; else hi = mid;
        }
        start[i] = lo;
      }
      return { k, start, code: Uint8Array.from(rows, (i) => stratum[i]) };
    });
    const out = new Float64Array(nStrata + 1), used = new Float64Array(nStrata + 1);
    const drawn = Array.from({ length: (nStrata + 1) * bins }, () => []);  // p less share of positives
    if (near[0].k && near[1].k) {
      const index = Int32Array.from(p, (v) => binOf(v, bins));
      for (let d = 0; d < draws; d++) {
        const sums = new Float64Array((nStrata + 1) * bins), size = new Float64Array((nStrata + 1) * bins);
        const count = new Float64Array(nStrata + 1);
        for (let i = 0; i < n; i++) {
          const label = next() < p[i] ? 1 : 0, from = near[label];
          const code = from.code[from.start[i] + Math.floor(next() * from.k)];
          sums[code * bins + index[i]] += p[i] - label;
          size[code * bins + index[i]] += 1;
          count[code] += 1;
        }
        for (let s = 1; s <= nStrata; s++) {
          if (!count[s]) continue;
          let error = 0;
          for (let b = 0; b < bins; b++) error += Math.abs(sums[s * bins + b]);
          out[s] += error / count[s];
          used[s] += 1;
        }
        size.forEach((m, at) => { if (m) drawn[at].push(sums[at] / m); });
      }
    }
    const bars = drawn.map((values) => {
      values.sort((a, b) => a - b);
      return [0.05, 0.95].map((part) => (values.length ? values[Math.round(part * (values.length - 1))] : NaN));
    });
    const made = { means: out.map((value, s) => (used[s] ? value / used[s] : NaN)), bars };
    cases.nulls.set(bins, made);
    return made;
  };
  // Bars come from the null that judges the panel: over all cases labels drawn from p, in a stratum the selection null.
  const diagram = (cases, code, bins, nulls) => {
    const inside = Array.from({ length: bins }, () => []), positives = new Float64Array(bins);
    let n = 0;
    for (let i = 0; i < cases.p.length; i++) {
      if (code && cases.stratum[i] !== code) continue;
      const b = binOf(cases.p[i], bins);
      inside[b].push(cases.p[i]);
      positives[b] += cases.y[i];
      n += 1;
    }
    let error = 0, floor = 0;
    const found = [];
    inside.forEach((ps, b) => {
      if (!ps.length) return;
      const sum = ps.reduce((a, v) => a + v, 0), chance = law(ps), p = sum / ps.length;
      const [least, most] = nulls.bars[code * bins + b], share = (value) => Math.max(0, Math.min(1, p - value));
      error += Math.abs(sum - positives[b]);
      floor += chance.distance;
      found.push({
        lo: b / bins, hi: (b + 1) / bins, n: ps.length, p, y: positives[b] / ps.length,
        low: code ? share(most) : chance.low / ps.length, high: code ? share(least) : chance.high / ps.length,
      });
    });
    return { n, ece: error / n, floor: floor / n, bins: found };
  };
  const NS = "http://www.w3.org/2000/svg";
  const mark = (svg, kind, attributes) => {
    const element = document.createElementNS(NS, kind);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    svg.append(element);
    return element;
  };
  const draw = (panel, found, role) => {
    const { left, top, side, gap, counts } = data.panel, svg = panel.querySelector("svg");
    for (const old of all("rect, circle", svg)) old.remove();
    const most = Math.max(...found.bins.map((b) => b.n)), base = top + side + gap + counts;
    for (const b of found.bins) {
      const high = top + (1 - b.high) * side, height = counts * b.n / most;
      if (b.high >= b.low) mark(svg, "rect", { x: left + b.p * side - 3.5, y: high, width: 7, height: Math.max(1, (b.high - b.low) * side), class: "f-rule" });
      mark(svg, "rect", { x: left + b.lo * side + 0.5, y: base - height, width: Math.max(0, (b.hi - b.lo) * side - 1), height, class: "f-rule" });
    }
    for (const b of found.bins) {
      const dot = mark(svg, "circle", {
        cx: left + b.p * side, cy: top + (1 - b.y) * side, r: 2.6 + 4.4 * Math.sqrt(b.n / most), class: `f-${role} s-paper`,
      });
      dot.dataset.tip = `predicted ${show3(b.p)}, observed ${show3(b.y)}, ${b.n.toLocaleString("en")} cases${b.high >= b.low ? `; calibrated: ${show3(b.low)} to ${show3(b.high)}` : ""}`;
    }
    const texts = all("text", svg);
    texts[texts.length - 1].textContent = `≤ ${most.toLocaleString("en")}`;
  };
  for (const cell of all("#difficulty .cell")) {
    const key = cell.dataset.cell, slider = cell.querySelector(".bins"), known = data.cells[key];
    if (!known) { cell.querySelector("label").hidden = cell.querySelector(".reset").hidden = true; continue; }
    const start = slider.value, figures = all("figure.reliability:has(select)", cell);
    const kept = figures.map((figure) => figure.querySelector(".panels").innerHTML);
    const redraw = (figure, index) => {
      const method = figure.querySelector("select").value, bins = Number(slider.value);
      const what = figure.querySelector(".what"), first = figure.dataset.method;
      what.dataset.text ??= what.textContent;
      if (method === first && slider.value === start) {
        figure.querySelector(".panels").innerHTML = kept[index];
        all("svg", figure).forEach(prepare);
        what.textContent = what.dataset.text;
        return;
      }
      const cases = open(key, method), nulls = selectionNull(cases, known.strata.length, bins);
      what.textContent = `${bins} bins`;
      for (const panel of all(".panel", figure)) {
        const code = known.strata.indexOf(panel.dataset.stratum) + 1, found = diagram(cases, code, bins, nulls);
        if (!found.n) continue;
        const calibrated = code ? nulls.means[code] : found.floor;
        panel.querySelector(".ece b").textContent = show3(found.ece);
        panel.querySelector(".null b").textContent = show3(calibrated);
        const role = figure.querySelector(".swatch").classList.contains("before") ? "before" : "accent";
        draw(panel, found, role);
        panel.querySelector("svg").setAttribute("aria-label",
          `Reliability diagram, ${method}, ${panel.dataset.stratum}: ${found.n} cases, ECE ${show3(found.ece)}; calibrated ${show3(calibrated)}; ${bins} bins.`);
      }
    };
    const refresh = () => {
      cell.querySelector("output").textContent = slider.value;
      figures.forEach(redraw);
    };
    slider.addEventListener("input", refresh);
    all("select.method", cell).forEach((select) => select.addEventListener("change", refresh));
    cell.querySelector(".reset").addEventListener("click", () => {
      slider.value = start;
      for (const figure of figures) figure.querySelector("select").value = figure.dataset.method;
      refresh();
    });
  }

  // Before, after or both, everywhere at once. A figure or panel with one swatch is of one method.
  for (const part of all("figure, .byvotes .panel")) {
    const swatches = all(".swatch", part);
    if (swatches.length === 1) part.dataset.role = swatches[0].classList.contains("before") ? "before" : "after";
  }
  const sides = all("button[data-side]");
  for (const button of sides) {
    button.addEventListener("click", () => {
      root.dataset.sides = button.dataset.side;
      for (const other of sides) other.setAttribute("aria-pressed", String(other.dataset.side === button.dataset.side));
    });
  }

  // Every figure as a file or on the clipboard: its panels and their titles in one drawing, on white.
    const words = (element) => (element ? element.textContent.replace(/\s+/g, " ").trim() : "");
  const captionOf = (figure) => {
    const caption = figure.querySelector("figcaption"), model = figure.closest(".cell")?.querySelector(".cellname");
    if (!caption) return figure.querySelector("svg").getAttribute("aria-label");
    const copy = caption.cloneNode(true), chosen = caption.querySelector("select"), strong = copy.querySelector("strong");
    if (chosen) strong.textContent = chosen.value;
    for (const part of all("label, .tools, .key", copy)) part.remove();
    if (strong && strong.nextElementSibling) strong.append(", ");
    return [words(model), words(copy)].filter(Boolean).join(": ").replace(/ ,/g, ",");
  };
  const compose = (figure) => {
    const sheet = document.createElementNS(NS, "svg"), gap = 16, pen = document.createElement("canvas").getContext("2d");
    const rules = Object.entries(data.colours).map(([role, colour]) => `.f-${role}{fill:${colour}}.s-${role}{stroke:${colour}}`);
    mark(sheet, "style", {}).textContent = `text{font-family:system-ui,sans-serif}.f-none{fill:none}${rules.join("")}`;
    const paper = mark(sheet, "rect", { class: "f-paper" });
    let wide = 0, low = 30, x = gap, y = 30;
    const write = (text, left, down, size, weight) => {
      mark(sheet, "text", { x: left, y: down, "font-size": size, "font-weight": weight, class: "f-ink" }).textContent = text;
      pen.font = `${weight} ${size}px system-ui, sans-serif`;
      const end = left + pen.measureText(text).width;
      wide = Math.max(wide, end);
      return end;
    };
    write(captionOf(figure), gap, 20, 13, 600);
    let at = gap;
    for (const swatch of all(".key .swatch", figure)) {
      mark(sheet, "circle", { cx: at + 5, cy: y + 8, r: 5, class: swatch.classList.contains("before") ? "f-before" : "f-accent" });
      at = write(swatch.nextSibling.textContent.trim(), at + 15, y + 12, 12, 400) + gap;
      low = y + 26;
    }
    y = low;
    all("svg", figure).filter((svg) => svg.getClientRects().length).forEach((svg, i) => {
      const { width, height } = svg.viewBox.baseVal, panel = svg.closest(".panel");
      if (i && x + width > 1100) { x = gap; y = low; }
      const lines = panel ? [".title", ".values"].map((part) => words(panel.querySelector(part))).filter(Boolean) : [];
      lines.forEach((text, k) => write(text, x, y + 14 + 15 * k, 12 - k, k ? 400 : 600));
      const copy = svg.cloneNode(true), down = y + (lines.length ? 16 * lines.length + 6 : 0);
      for (const name of ["tabindex", "role", "aria-roledescription"]) copy.removeAttribute(name);
      for (const dot of all("[data-tip]", copy)) {
        mark(dot, "title", {}).textContent = dot.dataset.tip;
        dot.removeAttribute("data-tip");
        dot.classList.remove("lit");
      }
      for (const [name, value] of Object.entries({ x, y: down, width, height, overflow: "visible" })) copy.setAttribute(name, value);
      sheet.append(copy);
      wide = Math.max(wide, x + width);
      low = Math.max(low, down + height + gap);
      x += width + gap;
    });
    const axis = words(figure.querySelector(".axisname"));
    if (axis) { write(axis, gap, low, 11, 400); low += gap; }
    const width = Math.ceil(wide + gap), height = Math.ceil(low);
    for (const [name, value] of Object.entries({ width, height })) { sheet.setAttribute(name, value); paper.setAttribute(name, value); }
    sheet.setAttribute("viewBox", `0 0 ${width} ${height}`);
    return { text: new XMLSerializer().serializeToString(sheet), width, height };
  };
  const picture = async ({ text, width, height }) => {
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: 2 * width, height: 2 * height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((done) => { canvas.toBlob(done, "image/png"); });
  };
  const copies = Boolean(navigator.clipboard && navigator.clipboard.write && window.ClipboardItem);
  all("main figure").filter((figure) => figure.querySelector("svg")).forEach((figure) => {
    const tools = document.createElement("span"), status = document.createElement("span");
    tools.className = "tools";
    status.setAttribute("role", "status");
    const name = () => `${captionOf(figure).replace(/[^A-Za-z0-9]+/g, "-").replace(/^-|-$/g, "").toLowerCase().slice(0, 60) || "figure"}`;
    const add = (text, what, work) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.setAttribute("aria-label", `${what}: ${captionOf(figure)}`);
      button.addEventListener("click", () => {
        Promise.resolve().then(work).then((told) => { status.textContent = told || ""; })
          .catch(() => { status.textContent = "The browser did not allow it."; });
      });
      tools.append(button);
    };
    add("SVG", "Download as SVG", () => save(new Blob([compose(figure).text], { type: "image/svg+xml" }), `${name()}.svg`));
    add("PNG", "Download as PNG", async () => save(await picture(compose(figure)), `${name()}.png`));
    if (copies) {
      add("Copy", "Copy as PNG", async () => {
        await navigator.clipboard.write([new ClipboardItem({ "image/png": picture(compose(figure)) })]);
        return "Copied.";
      });
    }
    tools.append(status);
    (figure.querySelector("figcaption") || figure).append(tools);
  });

  // One page to print: the answer, its figure and its table.
  document.getElementById("print-one").addEventListener("click", () => {
    root.dataset.print = "one";
    print();
  });
  addEventListener("afterprint", () => { delete root.dataset.print; });
})();
