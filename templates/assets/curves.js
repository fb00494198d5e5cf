// The plots of a page: each figure with JSON is drawn by uPlot as soon as it comes near the screen.
// Without this script, and on paper, its SVG stands in its place. Nothing is loaded, nothing is animated.
"use strict";
(() => {
  const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];
  const COLOURS = 8;
  const STEPS = Array.from({length: 39}, (_, at) => [1, 2, 5][at % 3] * 10 ** Math.floor(at / 3)); // whole steps only
  const SECONDS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400, 432000];
  const drawn = new Map(); // figure -> function that draws it anew

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const number = (value) => {
    if (value == null) return "–";
    const size = Math.abs(value);
    return size >= 1e6 || (size > 0 && size < 1e-3) ? value.toExponential(3) : String(+value.toPrecision(6));
  };
  const clock = (seconds, longest = seconds) =>
    longest < 120 ? `${+seconds.toFixed(1)} s` :
    longest < 7200 ? `${+(seconds / 60).toFixed(2)} min` : `${+(seconds / 3600).toFixed(2)} h`;

  // An exponential mean without the pull of its start, as TensorBoard draws it.
  function smooth(values, weight) {
    let mean = 0, share = 0;
    return values.map((value) => {
      if (value == null) return null;
      mean = mean * weight + value * (1 - weight);
      share = share * weight + 1 - weight;
      return mean / share;
    });
  }

  // One table [x, y, trend, y, trend, ...] of all lines; a line without a value at an x has a hole there.
  function table(lines, weight, log) {
    const shown = (values) => (log ? values.map((value) => (value > 0 ? value : null)) : values);
    const parts = lines.map(({x, y}) => [x, shown(y), ...(weight ? [shown(smooth(y, weight))] : [])]);
    return parts.length === 1 ? parts[0] : uPlot.join(parts);
  }

  function series(lines, weight) {
    return lines.flatMap((line, at) => {
      const stroke = colour(line.dashed ? "--soft" : `--c${at % COLOURS}`);
      const dash = line.dashed ? [5, 3] : DASHES[Math.floor(at / COLOURS) % DASHES.length];
      const raw = {label: line.name, stroke: weight ? stroke + "55" : stroke, width: 1.5, dash, value: (_, y) => number(y)};
      return weight ? [raw, {label: line.name, class: "u-trend", stroke, width: 2, dash, points: {show: false}}] : [raw];
    });
  }

  function axes(plot, edge, width) {
    const common = {stroke: colour("--soft"), grid: {stroke: colour("--rule"), width: 1}, ticks: {show: false}, font: "11px system-ui"};
    const along = plot.span
      ? {incrs: SECONDS, space: 70, values: (_, ticks) => ticks.map((tick) => clock(tick, ticks.at(-1)))}
      : {incrs: STEPS, values: (_, ticks) => ticks.map(number)};
    const left = edge.left ? edge.left * width : (_, values) => 14 + 6.5 * Math.max(2, ...(values ?? []).map((text) => text.length));
    return [
      {...common, ...along, size: 26},
      {...common, size: left, values: (_, ticks) => ticks.map((value) => (value == null ? "" : number(value)))},
    ];
  }

  function start(figure) {
    const plot = JSON.parse(figure.querySelector("script").textContent);
    const edge = figure.dataset; // shares of the width left and right of the lines, for a common scale
    const box = figure.querySelector(".live");
    const said = figure.querySelector(".unseen");
    const tools = figure.closest("section").querySelector(".tools");
    const every = plot.lines.flatMap((line) => [line.x[0], line.x.at(-1)]).filter((x) => x != null);
    const [first, last] = plot.span ?? [Math.min(...every), Math.max(...every)];
    for (const line of plot.span ? plot.lines : []) { // holes at the ends: the scale is that of the phases
      if (line.x[0] > first) { line.x.unshift(first); line.y.unshift(null); }
      if (line.x.at(-1) < last) { line.x.push(last); line.y.push(null); }
    }
    const positive = plot.lines.some((line) => line.y.some((value) => value > 0));
    const hidden = new Set();
    let chart = null;

    function draw(range) {
      const width = figure.clientWidth;
      const weight = Number(tools.smoothing.value);
      const log = tools.log.checked && positive;
      const each = weight ? 2 : 1; // series of a line
      chart?.destroy();
      chart = figure.chart = new uPlot({
        width,
        height: plot.span ? 150 : 210,
        padding: [8, edge.right ? edge.right * width : 18, 0, 0],
        scales: {
          x: {time: false, range: (_, low, high) => (low === high ? [low - 0.5, high + 0.5] : [low, high])},
          y: log ? {distr: 3} : {},
        },
        axes: axes(plot, edge, width),
        series: [{label: plot.along, value: (_, x) => (x == null ? "–" : plot.span ? clock(x) : number(x))}, ...series(plot.lines, weight)],
        legend: {markers: {width: 2, stroke: (_, at) => colour(plot.lines[Math.floor((at - 1) / each)]?.dashed ? "--soft" : `--c${Math.floor((at - 1) / each) % COLOURS}`)}},
        hooks: {setSeries: [(self, at, change) => {
          if (at == null || change.show == null || (weight && at % 2 === 0)) return;
          if (change.show) hidden.delete((at - 1) / each); else hidden.add((at - 1) / each);
          if (weight) self.setSeries(at + 1, {show: change.show});
        }]},
      }, table(plot.lines, weight, log), box);
      for (const line of [...hidden]) chart.setSeries(1 + line * each, {show: false});
      if (range) chart.setScale("x", range);
      labels();
    }

    // The names of the lines are buttons for the keyboard, too.
    function labels() {
      for (const label of chart.root.querySelectorAll(".u-series:not(:first-child):not(.u-trend) th")) {
        label.tabIndex = plot.lines.length > 1 ? 0 : -1;
        label.setAttribute("role", "button");
        label.onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); label.click(); } };
      }
    }

    const range = () => ({min: chart.scales.x.min, max: chart.scales.x.max});
    const whole = () => chart.setScale("x", {min: first, max: last});

    function zoom(factor) {
      const {min, max} = range();
      const middle = chart.cursor.idx == null ? (min + max) / 2 : chart.data[0][chart.cursor.idx];
      const from = Math.max(first, middle - (middle - min) * factor), to = Math.min(last, middle + (max - middle) * factor);
      if (to > from) chart.setScale("x", {min: from, max: to});
    }

    // To the next point, or on the next pixel where points are closer than that.
    function move(by) {
      const [low, high] = chart.series[0].idxs;
      const at = chart.cursor.idx == null ? (by > 0 ? low - 1 : high + 1) : chart.cursor.idx;
      const stride = Math.max(1, Math.round((high - low) / chart.over.clientWidth));
      const next = Math.min(high, Math.max(low, at + by * stride));
      chart.setCursor({left: chart.valToPos(chart.data[0][next], "x"), top: chart.over.clientHeight / 2});
      said.textContent = [...chart.root.querySelectorAll(".u-series:not(.u-trend):not(.u-off)")].map((row) => row.firstChild.innerText.trim() + " " + row.lastChild.innerText).join(", ");
    }

    const keys = {
      ArrowLeft: (far) => move(far ? -20 : -1), ArrowRight: (far) => move(far ? 20 : 1),
      Home: () => move(-Infinity), End: () => move(Infinity),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: whole, Escape: whole,
    };
    box.addEventListener("keydown", (event) => {
      if (event.target !== box || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key](event.shiftKey);
    });

    box.hidden = tools.hidden = false;
    figure.classList.add("drawn");
    draw();
    new ResizeObserver(() => {
      if (figure.clientWidth && figure.clientWidth !== chart.width) draw(range());
    }).observe(figure);
    drawn.set(figure, (all) => (all ? whole() : draw(range())));
  }

  const redraw = (section, all) => {
    for (const [figure, again] of drawn) if (!section || section.contains(figure)) again(all);
  };
  for (const tools of document.querySelectorAll(".tools")) {
    const section = tools.closest("section");
    tools.onsubmit = () => false;
    tools.oninput = () => { tools.smoothed.value = tools.smoothing.value; redraw(section, false); };
    tools.whole.onclick = () => redraw(section, true);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw(null, false));

  const near = new IntersectionObserver((seen) => {
    for (const {isIntersecting, target} of seen) if (isIntersecting) { near.unobserve(target); start(target); }
  }, {rootMargin: "400px"});
  for (const data of document.querySelectorAll("figure > script")) near.observe(data.parentElement);
})();
