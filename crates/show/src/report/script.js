"use strict";
(() => {
const $ = (s, of) => (of || document).querySelector(s), $$ = (s, of) => [...(of || document).querySelectorAll(s)];
const { abs, ceil, floor, max, min, round } = Math;
const show = e => { e.hidden = false; }, make = n => document.createElement(n);

const root = document.documentElement, themes = ["auto", "light", "dark"], button = $("#theme");
let theme;
// A file may have no storage.
try { theme = localStorage.getItem("numatop-theme"); } catch {}
const setTheme = t => {
  theme = themes.includes(t) ? t : "auto";
  root.dataset.theme = theme;
  button.textContent = "Theme: " + theme;
};
setTheme(theme);
show(button);
button.onclick = () => {
  setTheme(themes[(themes.indexOf(theme) + 1) % 3]);
  try { localStorage.setItem("numatop-theme", theme); } catch {}
};
show($("#print"));
$("#print").onclick = () => print();
let closed = [];
addEventListener("beforeprint", () => { closed = $$("details:not([open])"); closed.forEach(d => { d.open = true; }); });
addEventListener("afterprint", () => closed.forEach(d => { d.open = false; }));

for (const b of $$(".copy")) {
  const said = t => { b.textContent = t; setTimeout(() => { b.textContent = "Copy"; }, 1500); };
  show(b);
  b.onclick = async () => {
    const code = $("code", b.parentNode);
    try { await navigator.clipboard.writeText(code.textContent); said("Copied"); } catch {
      getSelection().selectAllChildren(code);
      said("Selected");
    }
  };
}

// A page without numbers of its own has no more.
let D;
try { D = JSON.parse($("#data").textContent); } catch { return; }
root.classList.add("live");

const short = v => abs(v) < .005 ? "0" : abs(v) < .095 ? v.toFixed(2) : abs(v) < 9.95 ? v.toFixed(1).replace(/\.0$/, "") : v.toFixed(0);
const prefixed = (v, step, names, ends) => { let i = 0; while (v >= step * .9995 && i < names.length - 1) { v /= step; i++; } return (ends && i ? v.toFixed(v < 99.95 ? 1 : 0) : i && v < 9.95 ? v.toFixed(1) : i ? v.toFixed(0) : short(v)) + names[i]; };
const text = (v, u) => v === null || Number.isNaN(v) ? "–" : u === "%" ? short(v) + " %" : u === "r" ? v.toFixed(2) : u === "B" ? prefixed(v, 1024, [" bytes", " KiB", " MiB", " GiB", " TiB"], 1) : u === "/s" ? prefixed(v, 1000, ["", "k", "M", "G"]) + " /s" : short(v);
const clock = (at, full, seconds = D.seconds) => {
  const d = new Date(D.begin + at * D.width + D.offset * 1000), iso = d.toISOString(), time = iso.slice(11, seconds || full ? 19 : 16);
  return full ? iso.slice(0, 10) + " " + time : D.days ? d.getUTCDate() + " " + d.toLocaleString("en", { month: "short", timeZone: "UTC" }) + " " + time : time;
};
const length = n => { const s = n * D.width / 1000; return s < 119.5 ? short(s) + " s" : s < 7170 ? short(s / 60) + " min" : s < 172800 ? short(s / 3600) + " h" : short(s / 86400) + " days"; };

// The chosen part: buckets from a to b.
let a = 0, b = D.count, at = null;
const whole = () => a === 0 && b === D.count;
// All of it has the page's own words: sums of parts are rounded. Only what changes is written.
const put = (e, t) => { e.o ??= e.t = e.textContent; t ??= e.o; if (e.t !== t) e.textContent = e.t = t; };
// Sums up to each place: a part is a difference of two.
const sums = (n, of) => { const s = new Float64Array(n + 1); for (let i = 0; i < n; i++) s[i + 1] = s[i] + of(i); return s; };
for (const { id, rows } of D.lanes) rows.forEach((row, i) => {
  const v = row.v, w = row.w || D.time;
  row.n = sums(D.count, i => v[i] * w[i]);
  row.d = sums(D.count, i => v[i] === null ? 0 : w[i]);
  row.cell = $(`[data-lane=${id}] :is([data-row="${i}"],[data-row=all])`);
});
const plots = $$("[data-lane] svg.row"), marks = $$(".mark");
const strip = $("#strip"), brush = make("div"), cursor = make("div");
brush.id = "brush"; cursor.id = "cursor"; brush.hidden = cursor.hidden = true;
if (strip) strip.append(brush);
const mean = ({ n, d }) => d[b] > d[a] ? (n[b] - n[a]) / (d[b] - d[a]) : null;
const values = () => {
  for (const { rows, unit } of D.lanes) for (const row of rows)
    if (row.cell) put(row.cell, at === null && whole() ? null : text(at === null ? mean(row) : row.v[at], unit));
  const here = $("#at");
  if (here) here.textContent = at === null ? "mean" : clock(at);
};
const place = e => {
  const from = +e.dataset.a, to = e.dataset.b === undefined ? from : +e.dataset.b, left = max(from, a), right = min(to, b);
  e.hidden = to < a || from > b || (e.className === "tick" && from > b - (b - a) * .04);
  e.style.left = (left - a) * 100 / (b - a) + "%";
  if (to > from) e.style.width = max(0, right - left) * 100 / (b - a) + "%";
};
const ticks = () => {
  const box = $("#axis"), span = (b - a) * D.width / 1000;
  const step = [1,2,5,10,15,30,60,120,300,600,900,1800,3600,7200,10800,21600,43200,86400,604800].find(s => span / s < 8) || span;
  const begin = D.begin / 1000 + D.offset, first = ceil((begin + a * D.width / 1000) / step) * step;
  box.textContent = "";
  for (let t = first; t < begin + b * D.width / 1000; t += step) {
    const e = make("span");
    e.className = "tick"; e.dataset.a = (t - begin) * 1000 / D.width; e.textContent = clock(+e.dataset.a, 0, step < 60);
    box.append(e); place(e);
  }
};
const pieces = D.measured.length, ofParts = list => sums(pieces, i => list[i] || 0), measured = ofParts(D.measured), pairs = (D.matrix[0] || []).map((_, i) => ofParts(D.matrix.map(p => p[i])));
const part = s => s[min(pieces, ceil(b / D.each))] - s[floor(a / D.each)];
const cells = $$("[data-matrix=accesses] td.n");
const records = ["programs", "containers"].flatMap(id => $$(`[data-rows=${id}] tbody tr`).filter(tr => D[id][tr.dataset.at]).map(tr => {
  const r = { sums: D[id][tr.dataset.at].map(ofParts), bar: $("td.remote rect.memory", tr) };
  for (const name of ["cpu", "wait", "ipc", "remote"]) {
    const c = $("td." + name, tr);
    if (c) r[name] = { c, v: c.dataset.v, e: $(".num", c) || c };
  }
  if (r.remote) r.mark = /^[=~]/.test(r.remote.e.textContent) ? r.remote.e.textContent[0] : "";
  return r;
}));
const tables = () => {
  const time = part(measured) || 1, w = whole();
  for (const r of records) {
    const [run, far, placed, inst, cycles, wait] = r.sums.map(part), pct = placed ? far * 100 / placed : null, ipc = cycles ? inst / cycles : null;
    const set = (to, value, shown = short(value)) => { if (to) { to.c.dataset.v = w ? to.v : value ?? ""; put(to.e, w ? null : shown); } };
    set(r.cpu, run * 100 / time);
    set(r.wait, wait * 100 / time);
    set(r.ipc, ipc, ipc === null ? "–" : ipc.toFixed(2));
    // Not known stays a question mark, and is never 0.
    set(r.remote, pct, pct === null ? "?" : r.mark + short(pct));
    if (r.bar) r.bar.setAttribute("width", (pct || 0) * .4);
  }
  if (cells.length && pairs.length) {
    const add = l => l.reduce((x, y) => x + y, 0), sum = pairs.map(part), all = add(sum) || 1, k = Math.sqrt(sum.length) + 1;
    const others = sum.filter((_, i) => i % k), own = max(...sum.filter((_, i) => i % k === 0)), far = max(all / 50, ...others);
    cells.forEach((td, i) => { const p = sum[i] * 100 / all; put(td, w ? null : p === 0 ? "0" : p < .05 ? "<0.1" : p.toFixed(1)); td.style.setProperty("--h", min(1, sum[i] / ((i % k ? far : own) || 1))); });
    const between = $("#between");
    if (between) put(between, w ? null : (add(others) * 100 / all).toFixed(1) + " %");
  }
};
let due = 0;
const choose = (from, to) => {
  a = max(0, min(D.count - 1, round(from)));
  b = max(a + 1, min(D.count, round(to)));
  if (!due) due = requestAnimationFrame(draw);
};
const draw = () => {
  due = 0;
  const all = whole(), said = all ? `All of it, ${length(D.count)}.` : `${clock(a)} to ${clock(b)} (${length(b - a)})`;
  for (const svg of plots) svg.setAttribute("viewBox", `${2 * a} 0 ${2 * (b - a)} 400`);
  marks.forEach(place);
  ticks(); values(); tables();
  brush.hidden = all;
  brush.style.left = a * 100 / D.count + "%"; brush.style.width = (b - a) * 100 / D.count + "%";
  $("#chosen").textContent = said;
  $("#all").hidden = all; $("#hint").hidden = !all;
  const detail = $("#detail");
  detail.hidden = all || !D.command;
  detail.textContent = `in full detail: ${D.command} --from '${clock(a, 1)}' --to '${clock(b, 1)}' -o part.html`;
  if (strip) strip.ariaValueText = said;
};
if (strip) {
  show($("#hint"));
  Object.assign(strip, { role: "slider", tabIndex: 0, ariaLabel: strip.dataset.label, ariaValueMin: 0, ariaValueMax: D.count, ariaValueNow: 0 });
  const bucket = x => { const r = strip.getBoundingClientRect(); return max(0, min(D.count, (x - r.left) / r.width * D.count)); };
  let from = null;
  strip.onpointerdown = e => { from = bucket(e.clientX); strip.setPointerCapture(e.pointerId); };
  strip.onpointermove = e => { if (from !== null) { const to = bucket(e.clientX); if (abs(to - from) > D.count / 300) choose(min(from, to), max(from, to)); } };
  strip.onpointerup = strip.onpointercancel = () => { from = null; };
  strip.onkeydown = e => {
    const n = b - a, step = max(1, round(n / 10));
    const to = { ArrowLeft: [-step, -step], ArrowRight: [step, step], "+": [n / 4, -n / 4], "=": [n / 4, -n / 4], "-": [-n / 2, n / 2] }[e.key];
    if (e.key === "Escape") choose(0, D.count);
    else if (to) {
      let [x, y] = [a + to[0], b + to[1]];
      if (e.key.startsWith("Arrow")) { x = max(0, min(D.count - n, x)); y = x + n; }
      choose(x, y);
      strip.ariaValueNow = a;
    } else return;
    e.preventDefault();
  };
  $("#all").onclick = () => choose(0, D.count);
}
for (const link of $$("[data-show]")) link.addEventListener("click", () => choose(...link.dataset.show.split(",").map(Number)));

const box = $(".lanes"), first = $("[data-lane] .plot");
if (box && first) {
  box.append(cursor);
  const off = () => { at = null; cursor.hidden = true; values(); };
  box.onpointermove = e => {
    const r = first.getBoundingClientRect(), x = (e.clientX - r.left) / r.width;
    if (x < 0 || x >= 1 || e.buttons) { if (at !== null) off(); return; }
    at = min(b - 1, a + floor(x * (b - a)));
    cursor.hidden = false;
    cursor.style.left = e.clientX - box.getBoundingClientRect().left + "px";
    values();
  };
  box.onpointerleave = off;
}

for (const table of $$("[data-rows]")) {
  const body = $("tbody", table);
  for (const th of $$("[data-sort]", table)) {
    const word = make("button"), col = th.cellIndex, words = /name|text/.test(th.dataset.sort);
    word.type = "button"; word.textContent = th.textContent; th.textContent = ""; th.append(word);
    word.onclick = () => {
      const up = th.ariaSort === "descending" || (th.ariaSort !== "ascending" && words);
      $$("[aria-sort]", table).forEach(o => o.removeAttribute("aria-sort"));
      th.ariaSort = up ? "ascending" : "descending";
      const key = tr => { const c = tr.cells[col]; return words ? c.textContent : c.dataset.v; }, known = tr => key(tr) !== "";
      $$("tr:not(.rest)", body).sort((x, y) => known(y) - known(x) || (words ? key(x).localeCompare(key(y)) : key(x) - key(y)) * (up ? 1 : -1)).forEach(tr => body.insertBefore(tr, $(".rest", body)));
    };
  }
  const find = $(`[data-find=${table.dataset.rows}]`);
  show(find.parentNode);
  find.oninput = () => { const words = find.value.toLowerCase(); $$("tr", body).forEach(tr => { tr.hidden = !tr.classList.contains("rest") && !tr.textContent.toLowerCase().includes(words); }); };
}

// Hot spots: a frame becomes as wide as the picture.
const flame = $(".flame");
if (flame) {
  const frames = $$(".frame", flame).map(e => ({ e, l: parseFloat(e.style.left), w: parseFloat(e.style.width) }));
  for (const f of frames) f.e.onclick = () => {
    const wide = f.e.dataset.wide, l = wide ? 0 : f.l, w = wide ? 100 : f.w;
    for (const o of frames) {
      delete o.e.dataset.wide;
      const left = max(0, (o.l - l) * 100 / w), right = min(100, (o.l + o.w - l) * 100 / w);
      o.e.hidden = right - left < .02; o.e.style.left = left + "%"; o.e.style.width = max(0, right - left) + "%";
    }
    if (!wide) f.e.dataset.wide = 1;
  };
}
values();
})();
