// The top of a page as a picture: picture.mjs PAGE PICTURE.

import { writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { open, start } from "./browser.mjs";

const [from, to] = process.argv.slice(2);
const [width, height] = [1280, 1180];
const browser = await start();
const page = await open(browser, `file://${resolve(from)}`, { width, height });
writeFileSync(to, await page.picture({ x: 0, y: 0, width, height }));
await browser.close();
console.log(`look at ${to}`);
