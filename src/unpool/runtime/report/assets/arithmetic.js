/* Window arithmetic along one axis: numbers in, numbers out.

   large position = small position * stride + tap * dilation - begin

   The rules are those of geometry.py and of operators/; a test compares the two over thousands of settings. */

const windowArithmetic = (() => {
  const half = (total, odd) => (odd === "end" ? Math.trunc(total / 2) : Math.trunc((total + 1) / 2));
  const ceilDiv = (a, b) => -Math.floor(-a / b);
  const isSame = (autoPad) => autoPad === "SAME_UPPER" || autoPad === "SAME_LOWER";

  /* The row that an opset selects: the newest version not above it. */
  function rowOf(rows, opset) {
    return rows.filter((row) => row.version <= opset).at(-1);
  }

  /* The settings without what this version does not have, and without pads where auto_pad makes them. */
  function effective(given, row) {
    const has = (name) => row.attributes.includes(name);
    const autoPad = has("auto_pad") ? given.autoPad : "NOTSET";
    const padded = autoPad === "NOTSET";
    return {
      ...given,
      autoPad,
      dilation: has("dilations") ? given.dilation : 1,
      begin: padded ? given.begin : 0,
      end: padded ? given.end : 0,
      ceil: has("ceil_mode") && given.ceil,
      outputPadding: has("output_padding") ? given.outputPadding : 0,
      outputSize: row.asks ? given.outputSize : null,
    };
  }

  function pooled(set, reach) {
    const { size, stride, begin, end } = set;
    if (isSame(set.autoPad)) {
      const small = ceilDiv(size, stride);
      const total = Math.max(0, (small - 1) * stride + reach - size);
      const before = half(total, set.autoPad === "SAME_UPPER" ? "end" : "begin");
      return { small, begin: before, steps: [
        `output = ⌈size / stride⌉ = ⌈${size} / ${stride}⌉ = ${small}`,
        `padding = max(0, (${small} − 1) · ${stride} + ${reach} − ${size}) = ${total}, ${before} of it at the beginning`,
      ] };
    }
    const room = size + begin + end - reach;
    const line = `room = size + pads − reach = ${size} + ${begin} + ${end} − ${reach} = ${room}`;
    if (set.ceil && set.autoPad !== "VALID") {
      const inside = Math.floor((size + begin - 1) / stride);
      const small = Math.min(ceilDiv(room, stride), inside) + 1;
      return { small, begin, steps: [line,
        `output = min(⌈room / stride⌉, ⌊(size + begin − 1) / stride⌋) + 1 = min(${ceilDiv(room, stride)}, ${inside}) + 1 = ${small}`,
      ] };
    }
    const small = Math.floor(room / stride) + 1;
    return { small, begin, steps: [line, `output = ⌊room / stride⌋ + 1 = ⌊${room} / ${stride}⌋ + 1 = ${small}`] };
  }

  function unpooled(set, reach) {
    const { size, stride, begin, end } = set;
    const inferred = (size - 1) * stride + reach - begin - end;
    const steps = [`inferred = (size − 1) · stride + kernel − pads = (${size} − 1) · ${stride} + ${reach} − ${begin + end} = ${inferred}`];
    if (set.outputSize === null) return { large: inferred, begin, steps: [...steps, `output = ${inferred}`] };
    return { large: set.outputSize, begin, steps: [...steps, `output = output_shape = ${set.outputSize}`] };
  }

  function transposed(set, reach, row) {
    const { size, stride, begin, end, outputPadding } = set;
    const full = (size - 1) * stride + outputPadding + reach;
    const steps = [`full = (size − 1) · stride + output_padding + reach = (${size} − 1) · ${stride} + ${outputPadding} + ${reach} = ${full}`];
    const cut = (large, odd) => {
      const total = full - large;
      const before = total < 0 ? 0 : half(total, odd);
      return { large, begin: before, steps: [...steps, `cut = full − output = ${full} − ${large} = ${total}, ${before} of it at the beginning`] };
    };
    if (set.outputSize !== null) {
      steps.push(`output = output_shape = ${set.outputSize}`);
      return cut(set.outputSize, (set.autoPad === "SAME_UPPER") !== row.swapped ? "end" : "begin");
    }
    if (isSame(set.autoPad)) {
      steps.push(`output = size · stride = ${size * stride}`);
      return cut(size * stride, set.autoPad === "SAME_UPPER" ? "end" : "begin");
    }
    const large = full - begin - end;
    return { large, begin, steps: [...steps, `output = full − pads = ${full} − ${begin} − ${end} = ${large}`] };
  }

  function refusalOf(set, row, found) {
    const bound = Math.max(set.stride, set.dilation);
    if (row.operator === "ConvTranspose" && row.bounded && set.outputPadding > 0 && set.outputPadding >= bound) {
      return `output_padding has to be below the larger of stride and dilation, ${bound}.`;
    }
    if (found.small < 0) return `The window reaches over ${found.reach}, the axis and its pads have less room.`;
    return found.large < 0 ? "The pads take more than there is." : "";
  }

  /* Which large positions every small position is tied to, tap by tap; some lie outside of the axis. */
  function ties(set, small, begin) {
    return Array.from({ length: Math.max(0, small) }, (_, place) =>
      Array.from({ length: set.kernel }, (_, tap) => place * set.stride + tap * set.dilation - begin));
  }

  /* Sizes, padding and ties for settings of one axis; `rows` are the versions of the operator. */
  function resolve(given, rows) {
    const row = rowOf(rows, given.opset);
    if (!row) return { refusal: `${rows[0].operator} exists from opset ${rows[0].version} on.`, steps: [] };
    const set = effective(given, row);
    const reach = (set.kernel - 1) * set.dilation + 1;
    const isPool = row.operator === "MaxPool";
    const made = isPool ? pooled(set, reach) : row.operator === "MaxUnpool" ? unpooled(set, reach) : transposed(set, reach, row);
    const found = { row, set, reach, ...made, ...(isPool ? { large: set.size } : { small: set.size }) };
    found.steps = [`reach = (kernel − 1) · dilation + 1 = (${set.kernel} − 1) · ${set.dilation} + 1 = ${reach}`, ...found.steps];
    found.refusal = refusalOf(set, row, found);
    if (found.refusal) return found;
    found.ties = ties(set, found.small, found.begin);
    const touched = new Set(found.ties.flat());
    found.untouched = Array.from({ length: found.large }, (_, place) => place).filter((place) => !touched.has(place));
    found.outside = found.ties.flat().filter((place) => place < 0 || place >= found.large).length;
    return found;
  }

  return { resolve, rowOf };
})();
