/* Draws window arithmetic, and lets people change it. Every element of class `unpool-window` on the page is one drawing;
   several may be on a page. */

const windowDrawing = (() => {
  const CELL = 30, GAP = 92, TOP = 34, MOST_CELLS = 40;
  const FIELDS = ["operator", "opset", "size", "kernel", "stride", "dilation", "begin", "end", "ceil", "autoPad", "outputPadding", "outputSize"];
  const NEEDS = { dilation: "dilations", ceil: "ceil_mode", autoPad: "auto_pad", outputPadding: "output_padding" };

  const svg = (name, attributes, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };
  const control = (root, name) => root.querySelector(`[data-field="${name}"]`);
  const word = (count, one) => `${count} ${one}${count === 1 ? "" : "s"}`;

  function settings(root) {
    const value = (name) => Number(control(root, name).value);
    const asked = control(root, "asksSize").checked;
    return {
      operator: control(root, "operator").value, opset: value("opset"), size: value("size"), kernel: value("kernel"),
      stride: value("stride"), dilation: value("dilation"), begin: value("begin"), end: value("end"),
      ceil: control(root, "ceil").checked, autoPad: control(root, "autoPad").value,
      outputPadding: value("outputPadding"), outputSize: asked ? value("outputSize") : null,
    };
  }

  function put(root, given) {
    for (const name of FIELDS) {
      const field = control(root, name), value = given[name];
      if (value === undefined) continue;
      if (name === "outputSize") control(root, "asksSize").checked = value !== null;
      if (value === null) continue;
      if (field.type === "checkbox") field.checked = value;
      else {
        if (field.type === "range" && Number(field.max) < value) field.max = value;
        field.value = value;
      }
    }
  }

  /* Which controls mean something for this operator, version and auto_pad; the others are off. */
  function enable(root, found) {
    const row = found.row, has = (name) => Boolean(row) && row.attributes.includes(name);
    for (const [name, attribute] of Object.entries(NEEDS)) control(root, name).disabled = !has(attribute);
    const makesPads = Boolean(row) && found.set.autoPad !== "NOTSET";
    for (const name of ["begin", "end"]) control(root, name).disabled = makesPads;
    const asks = Boolean(row) && row.asks;
    control(root, "asksSize").disabled = !asks;
    control(root, "outputSize").disabled = !asks || !control(root, "asksSize").checked;
    for (const field of root.querySelectorAll("[data-field]")) {
      const shown = root.querySelector(`[data-shows="${field.dataset.field}"]`);
      if (shown) shown.textContent = field.value;
      field.closest("label").classList.toggle("off", field.disabled);
    }
  }

  /* The cells of an axis that fit into the drawing, around one of them. */
  function stretch(first, last, middle) {
    const count = Math.min(MOST_CELLS, last - first + 1);
    const begin = Math.max(first, Math.min(middle - Math.floor(count / 2), last - count + 1));
    return { first: begin, last: begin + count - 1, isCut: count < last - first + 1 };
  }

  function cell(parts, { x, y, text, kind, place }) {
    const group = svg("g", { class: `cell ${kind}`, ...(place === undefined ? {} : { "data-place": place }) });
    group.append(svg("rect", { x: x + 1, y, width: CELL - 2, height: CELL - 2, rx: 4 }));
    group.append(svg("text", { x: x + CELL / 2, y: y + CELL / 2 + 3 }, text));
    parts.push(group);
  }

  function kindOf(found, position, tied) {
    const inside = position >= 0 && position < found.large;
    if (tied.has(position)) return inside ? "tied" : "tied padding";
    return !inside ? "padding" : found.untouchedSet.has(position) ? "untouched" : "";
  }

  function draw(root, found, place) {
    const picture = root.querySelector("svg"), parts = [];
    const own = found.ties[place] ?? [], tied = new Set(own), all = found.ties.flat();
    const low = Math.min(0, ...all), high = Math.max(found.large - 1, ...all);
    const middle = own.length ? Math.floor((own[0] + own.at(-1)) / 2) : 0;
    const large = stretch(low, Math.max(low, high), middle);
    const small = stretch(0, Math.max(0, found.small - 1), place);
    const largeX = (position) => (position - large.first) * CELL;
    const span = (large.last - large.first + 1) * CELL, width = Math.max(span, (small.last - small.first + 1) * CELL, 8 * CELL);
    const shift = (width - (small.last - small.first + 1) * CELL) / 2, lift = (width - span) / 2;
    const smallX = (position) => (position - small.first) * CELL + shift;
    for (const position of own.filter((one) => one >= large.first && one <= large.last)) {
      parts.push(svg("line", {
        x1: lift + largeX(position) + CELL / 2, y1: TOP + CELL, x2: smallX(place) + CELL / 2, y2: TOP + GAP,
        class: position < 0 || position >= found.large ? "tie outside" : "tie",
      }));
    }
    for (let position = large.first; position <= large.last && high >= low; position++) {
      cell(parts, { x: lift + largeX(position), y: TOP, text: position, kind: kindOf(found, position, tied) });
    }
    for (let position = small.first; position <= small.last && found.small; position++) {
      cell(parts, { x: smallX(position), y: TOP + GAP, text: position, kind: position === place ? "small chosen" : "small", place: position });
    }
    const isPool = found.row.operator === "MaxPool", cutWord = (one) => (one.isCut ? ", a part of it" : "");
    parts.push(svg("text", { x: 0, y: TOP - 12, class: "axis" }, `${isPool ? "input" : "output"}: ${found.large}${cutWord(large)}`));
    parts.push(svg("text", { x: 0, y: TOP + GAP + CELL + 20, class: "axis" }, `${isPool ? "output" : "input"}: ${found.small}${cutWord(small)}`));
    picture.setAttribute("viewBox", `-2 0 ${width + 4} ${TOP + GAP + CELL + 30}`);
    picture.style.minWidth = `${Math.min(width, 18 * (width / CELL))}px`;
    picture.style.maxWidth = `${width * 1.25}px`;
    picture.replaceChildren(...parts);
  }

  function sentence(found, place) {
    if (!found.small) return "There is no window.";
    const taps = found.ties[place], inside = taps.filter((one) => one >= 0 && one < found.large);
    const verb = { MaxPool: "reads", MaxUnpool: "may be written to", ConvTranspose: "adds to" }[found.row.operator];
    const side = found.row.operator === "MaxPool" ? "input" : "output";
    const rest = taps.length - inside.length;
    const where = found.row.operator === "MaxPool" ? "on padding" : "outside";
    return `Position ${place} ${verb} ${inside.length ? `${side} ${inside.join(", ")}` : "nothing"}${rest ? `; ${word(rest, "tap")} ${rest === 1 ? "lies" : "lie"} ${where}` : ""}.`;
  }

  const LEFT = { MaxPool: "read by no window", MaxUnpool: "reached by no window: zero", ConvTranspose: "reached by no window: bias only" };

  function numbers(root, found) {
    const fill = (name, value) => { root.querySelector(`[data-number="${name}"]`).textContent = value; };
    const isPool = Boolean(found.row) && found.row.operator === "MaxPool";
    fill("version", found.row ? `${found.row.operator}-${found.row.version}` : "–");
    fill("output", found.refusal ? "–" : isPool ? found.small : found.large);
    fill("reach", found.reach ?? "–");
    fill("begin", found.refusal ? "–" : found.begin);
    fill("outside", found.refusal ? "–" : found.outside);
    fill("untouched", found.refusal ? "–" : found.untouched.length);
    root.querySelector("[data-words='begin']").textContent = !found.row || isPool ? "padding before" : "cut before";
    root.querySelector("[data-words='outside']").textContent = !found.row || isPool ? "taps on padding" : "taps outside";
    root.querySelector("[data-words='untouched']").textContent = found.row ? LEFT[found.row.operator] : "left over";
    root.querySelector(".steps").replaceChildren(...found.steps.map((step) => Object.assign(document.createElement("li"), { textContent: step })));
  }

  function update(root, rows) {
    const found = windowArithmetic.resolve(settings(root), rows[control(root, "operator").value]);
    const position = control(root, "position");
    position.max = Math.max(0, (found.small || 1) - 1);
    position.disabled = Boolean(found.refusal) || !found.small;
    enable(root, found);
    numbers(root, found);
    root.classList.toggle("refused", Boolean(found.refusal));
    found.untouchedSet = new Set(found.untouched);
    const place = Number(position.value);
    const said = found.refusal || sentence(found, place);
    root.querySelector(".said").textContent = said;
    if (found.refusal) root.querySelector("svg").replaceChildren();
    else draw(root, found, place);
    root.querySelector("svg").setAttribute("aria-label", found.refusal ? "No drawing" : `${found.row.operator}, ${found.large} large cells and ${found.small} small ones. ${said}`);
  }

  function start(root) {
    const { rows, presets } = JSON.parse(root.querySelector("script[type='application/json']").textContent);
    const refresh = () => update(root, rows);
    const choose = root.querySelector(".presets");
    const show = (number) => { put(root, presets[number].settings); control(root, "position").value = 0; refresh(); };
    choose.addEventListener("change", () => show(Number(choose.value)));
    for (const kind of ["input", "change"]) {
      root.addEventListener(kind, (event) => { if (event.target !== choose) refresh(); });
    }
    root.querySelector("svg").addEventListener("click", (event) => {
      const place = event.target.closest("[data-place]")?.dataset.place;
      if (place !== undefined) { control(root, "position").value = place; refresh(); }
    });
    show(0);
    root.dataset.ready = "yes";
  }

  return { start };
})();

for (const root of document.querySelectorAll(".unpool-window:not([data-ready])")) windowDrawing.start(root);
