// Pages in a browser: no error, no request, no sideways scroll, contrast and names, keys, and the script against its data.

import { readFileSync, statSync, writeFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { open, start } from "./browser.mjs";

const [directory, ...pages] = process.argv.slice(2);
const axe = process.env.AXE && readFileSync(process.env.AXE, "utf8");
let wrong = 0;
const check = (page, what, is, told = "") => {
  if (!is) wrong++;
  console.log(`${is ? "ok   " : "WRONG"} ${page}: ${what}${told === "" ? "" : `: ${told}`}`);
};
const widths = [400, 1280, 2560];
/** The most that the median step of the brush may take with its layout, ms. */
const STEP_MS = 20;
const browser = await start();
for (const path of pages) {
  const name = basename(path, ".html"), address = `file://${resolve(path)}`;
  for (const width of widths) for (const dark of [false, true]) {
    const page = await open(browser, address, { width, dark });
    const look = `${width} ${dark ? "dark" : "light"}`;
    const size = await page.ask("document.documentElement.scrollWidth");
    check(name, `${look}, no error`, page.said.length === 0, page.said.join("; "));
    check(name, `${look}, no request`, page.requests.length === 1, page.requests.slice(1).join(" "));
    check(name, `${look}, no sideways scroll`, size <= width, `${size} wide`);
    if (axe && width < 2000) {
      await page.ask(axe + ";0");
      const found = await page.ask(`axe.run(document, { resultTypes: ["violations"] }).then(r => r.violations.map(v => v.id + " " + v.nodes.length + ": " + v.nodes[0].html.slice(0, 120)))`);
      check(name, `${look}, axe`, found.length === 0, found.join("; "));
    }
    writeFileSync(join(directory, `${name}-${width}-${dark ? "dark" : "light"}.png`), await page.picture());
    await page.close();
  }
  const plain = await open(browser, address, { script: false });
  check(name, "without script, no error", plain.said.length === 0, plain.said.join("; "));
  writeFileSync(join(directory, `${name}-noscript.png`), await plain.picture());
  const pdf = await plain.pdf();
  const sheets = (pdf.toString("latin1").match(/\/Type\s*\/Page\b/g) ?? []).length;
  check(name, "printed", sheets > 0 && sheets < 20, `${sheets} sheets`);
  writeFileSync(join(directory, `${name}.pdf`), pdf);
  await plain.close();
  await (name.startsWith("diff") ? fold : use)(name, address, statSync(path).size);
}
await browser.close();
console.log(wrong ? `${wrong} wrong` : "all ok");
process.exitCode = wrong ? 1 : 0;

/** A comparison: rows that came out the same are one click away. */
async function fold(name, address, bytes) {
  const page = await open(browser, address);
  const shown = () => page.ask(`[...document.querySelectorAll("tr.same")].filter(row => row.offsetHeight).length`);
  const all = await page.ask(`document.querySelectorAll("tr.same").length`);
  const before = await shown();
  await page.ask(`(() => { const box = document.querySelector("#all-rows"); if (box) box.click(); })()`);
  check(name, "rows that are the same are folded", before === 0 && (await shown()) === all, `${before} of ${all}`);
  // Pages of one directory share the theme that was chosen last.
  const themes = await page.ask(`[1, 2, 3].map(() => { document.querySelector("#theme").click(); return document.documentElement.dataset.theme; })`);
  check(name, "themes go round", new Set(themes).size === 3, themes.join(" "));
  check(name, "no error in use", page.said.length === 0, page.said.join("; "));
  await page.close();
  console.log(`      ${name}: ${(bytes / 1000).toFixed(0)} kB`);
}

/** The script: a part that is chosen, the cursor, sorting, finding; and the time that they take. */
async function use(name, address, bytes) {
  const page = await open(browser, address);
  const key = keys => `(async () => { const s = document.querySelector("#strip"); s.focus(); for (const k of ${JSON.stringify(keys)}) s.dispatchEvent(new KeyboardEvent("keydown", { key: k, bubbles: true })); await new Promise(requestAnimationFrame); await new Promise(requestAnimationFrame); })()`;
  const words = selector => page.ask(`[...document.querySelectorAll(${JSON.stringify(selector)})].map(e => e.textContent)`);
  const before = await words("[data-rows] td, .val");
  const unknown = (await words(".remote .num")).filter(text => text === "?").length;
  await page.ask(key(["+", "+", "+"]));
  const views = await page.ask(`[...document.querySelectorAll("[data-lane] svg.row")].map(s => s.getAttribute("viewBox"))`);
  check(name, "all lanes show the part", new Set(views).size === 1 && !views[0].startsWith("0 0"), views[0]);
  const part = await words("[data-rows] td, .val");
  check(name, "no value is lost", part.every(text => !/NaN|undefined|Infinity/.test(text)), part.find(text => /NaN|undefined|Infinity/.test(text)) ?? "");
  const still = (await words(".remote .num")).filter(text => text === "?").length;
  check(name, "not known is no number in a part", still >= unknown, `${unknown} before, ${still} in the part`);
  check(name, "the command is there", /--from '\d{4}-/.test((await words("#detail"))[0]) || name.endsWith("anonymous"));
  await page.ask(key(["Escape"]));
  const after = await words("[data-rows] td, .val");
  check(name, "all of it is what it was", JSON.stringify(before) === JSON.stringify(after), after.findIndex((text, at) => text !== before[at]));
  const steps = await page.ask(`(async () => { const s = document.querySelector("#strip"), took = []; for (let i = 0; i < 12; i++) { let t; requestAnimationFrame(() => { t = performance.now(); }); s.dispatchEvent(new KeyboardEvent("keydown", { key: i % 6 < 3 ? "+" : "-", bubbles: true })); await new Promise(requestAnimationFrame); document.body.offsetHeight; took.push(performance.now() - t); } return took.sort((a, b) => a - b)[6]; })()`);
  await page.ask(key(["Escape"]));
  const sorted = await page.ask(`(() => { const t = document.querySelector("[data-rows=programs]"); t.querySelector("[data-sort=wait] button").click(); return [...t.querySelectorAll("td.wait")].slice(0, -1).map(c => +c.dataset.v); })()`);
  check(name, "sorted by waits", sorted.every((value, at) => at === 0 || value <= sorted[at - 1]));
  const found = await page.ask(`(() => { const i = document.querySelector("[data-find=programs]"); i.value = "zzzz"; i.dispatchEvent(new Event("input")); const n = [...document.querySelectorAll("[data-rows=programs] tbody tr:not(.rest)")].filter(r => !r.hidden).length; i.value = ""; i.dispatchEvent(new Event("input")); return n; })()`);
  check(name, "nothing is found where nothing is", found === 0);
  check(name, "a step of the brush", steps <= STEP_MS, `${steps.toFixed(1)} ms`);
  const nodes = await page.ask("document.querySelectorAll('*').length");
  const themes = await page.ask(`(() => { const b = document.querySelector("#theme"), seen = []; for (let i = 0; i < 3; i++) { b.click(); seen.push(document.documentElement.dataset.theme); } return seen.join(" "); })()`);
  check(name, "themes go round", themes === "light dark auto", themes);
  check(name, "no error in use", page.said.length === 0, page.said.join("; "));
  console.log(`      ${name}: ${(bytes / 1000).toFixed(0)} kB, ${nodes} elements, opened in ${page.load_ms.toFixed(0)} ms, a step of the brush with layout ${steps.toFixed(1)} ms`);
  await page.close();
}
