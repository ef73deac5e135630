"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];

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
    if (svg.closest("td") || !svg.querySelector("[data-tip]") || svg.hasAttribute("tabindex")) return;
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
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
      link.download = "cases.csv";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }

  // Before, after or both, everywhere at once. A figure or panel with one swatch is of one method.
  for (const part of all("figure, .byvotes .panel")) {
    const swatches = all(".swatch", part);
    if (swatches.length === 1) part.dataset.role = swatches[0].classList.contains("before") ? "before" : "after";
  }
  const sides = all("button[data-side]");
  const turn = (side) => {
    root.dataset.sides = side;
    for (const button of sides) button.setAttribute("aria-pressed", String(button.dataset.side === side));
  };
  for (const button of sides) button.addEventListener("click", () => turn(button.dataset.side));
  if (sides.length && innerWidth <= 640) turn("before"); // a telephone has room for one

  // One page to print: the answer, its figure and its table.
  document.getElementById("print-one").addEventListener("click", () => {
    root.dataset.print = "one";
    print();
  });
  addEventListener("afterprint", () => { delete root.dataset.print; });
})();
