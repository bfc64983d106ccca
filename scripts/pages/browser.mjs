// Headless Chromium over its DevTools protocol, spoken through a pipe: no port, and no package.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const LIMIT_MS = 60_000;

/** A browser; `close` ends it and removes its profile. */
export async function start() {
  const profile = mkdtempSync(join(tmpdir(), "numatop-pages-"));
  const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe", `--user-data-dir=${profile}`];
  const process_ = spawn("chromium", flags, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
  const waiting = new Map(), listeners = [];
  let last = 0, rest = "";
  process_.stdio[4].on("data", bytes => {
    rest += bytes;
    for (let end; (end = rest.indexOf("\0")) >= 0; rest = rest.slice(end + 1)) {
      const message = JSON.parse(rest.slice(0, end));
      const wanted = waiting.get(message.id);
      if (!wanted) { listeners.forEach(listener => listener(message)); continue; }
      waiting.delete(message.id);
      message.error ? wanted.reject(new Error(message.error.message)) : wanted.resolve(message.result);
    }
  });
  const send = (method, params = {}, sessionId) => new Promise((resolve, reject) => {
    const id = ++last;
    waiting.set(id, { resolve, reject });
    setTimeout(() => { if (waiting.delete(id)) reject(new Error(`${method} takes longer than a minute`)); }, LIMIT_MS).unref();
    process_.stdio[3].write(JSON.stringify({ id, method, params, sessionId }) + "\0");
  });
  process_.on("error", error => { console.error(`chromium: ${error.message}`); process.exit(3); });
  return {
    send,
    on: listener => listeners.push(listener),
    close: async () => {
      await send("Browser.close").catch(() => {});
      await new Promise(done => process_.exitCode === null ? process_.once("exit", done) : done());
      rmSync(profile, { recursive: true, force: true });
    },
  };
}

/** A page of this file: its console, its requests, and ways to ask it. */
export async function open(browser, address, { width = 1280, height = 900, dark = false, script = true } = {}) {
  const { targetId } = await browser.send("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await browser.send("Target.attachToTarget", { targetId, flatten: true });
  const said = [], requests = [], waits = [];
  browser.on(message => {
    if (message.sessionId !== sessionId) return;
    const { method, params } = message;
    if (method === "Log.entryAdded") said.push(`${params.entry.level}: ${params.entry.text}`);
    if (method === "Runtime.consoleAPICalled") said.push(params.args.map(arg => arg.value ?? arg.description).join(" "));
    if (method === "Runtime.exceptionThrown") said.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    if (method === "Network.requestWillBeSent" && !params.request.url.startsWith("data:")) requests.push(params.request.url);
    if (method === "Page.javascriptDialogOpening") said.push(`dialog: ${params.message}`);
    if (method === "Page.loadEventFired") waits.splice(0).forEach(done => done());
  });
  const send = (method, params) => browser.send(method, params, sessionId);
  for (const domain of ["Page", "Runtime", "Network", "Log"]) await send(`${domain}.enable`);
  await send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 600 });
  await send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }] });
  await send("Emulation.setScriptExecutionDisabled", { value: !script });
  const loaded = new Promise(done => waits.push(done));
  const begun = performance.now();
  await send("Page.navigate", { url: address });
  await loaded;
  const load_ms = performance.now() - begun;
  const ask = async expression => {
    const answer = await send("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true });
    if (answer.exceptionDetails) throw new Error(answer.exceptionDetails.exception?.description ?? "no answer");
    return answer.result.value;
  };
  const picture = async (clip) => {
    const size = (await send("Page.getLayoutMetrics")).cssContentSize;
    const part = clip ?? { x: 0, y: 0, width: size.width, height: Math.min(size.height, 16_000) };
    const shot = await send("Page.captureScreenshot", { captureBeyondViewport: true, clip: { ...part, scale: 1 } });
    return Buffer.from(shot.data, "base64");
  };
  const pdf = async () => Buffer.from((await send("Page.printToPDF", { preferCSSPageSize: true, printBackground: true, displayHeaderFooter: false })).data, "base64");
  return { send, ask, picture, pdf, said, requests, load_ms, close: () => browser.send("Target.closeTarget", { targetId }) };
}
