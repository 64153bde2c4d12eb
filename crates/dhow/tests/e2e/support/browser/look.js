// Returns what is wrong with a page for somebody who sees little, hears it, or holds it in a hand.
const found = [];
const numbers = (text) => (text.match(/[\d.]+/g) || []).map(Number);
const light = ([r, g, b]) => {
  const part = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
};
const paper = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const color = numbers(getComputedStyle(at).backgroundColor);
    if (color.length === 3 || color[3] > 0.99) return color;
  }
  return [255, 255, 255];
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const pale = new Set();
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.nodeValue.trim() || !element.checkVisibility()) continue;
  const ink = light(numbers(getComputedStyle(element).color)), ground = light(paper(element));
  const contrast = (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
  const what = `${element.nodeName}.${element.className}`;
  if (contrast < 4.5 && !pale.has(what)) { pale.add(what); found.push(`contrast ${contrast.toFixed(2)}: ${what}`); }
}
for (const field of document.querySelectorAll("input:not([type=hidden]), select, textarea")) {
  if (!field.labels.length && !field.getAttribute("aria-label")) found.push(`no label: ${field.outerHTML.slice(0, 80)}`);
}
for (const link of document.querySelectorAll("a, button, summary")) {
  if (!link.textContent.trim()) found.push(`no name: ${link.outerHTML.slice(0, 80)}`);
}
for (const table of document.querySelectorAll("table")) {
  if (!table.caption || !table.querySelector("th[scope=col]")) found.push("a table without a caption or heads");
}
if (document.querySelectorAll("h1").length !== 1) found.push(`${document.querySelectorAll("h1").length} first headings`);
if (!document.documentElement.lang || !document.title) found.push("no language or no title");
const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
for (const id of new Set(ids.filter((id, place) => ids.indexOf(id) !== place))) found.push(`twice: #${id}`);
const wide = document.documentElement.scrollWidth - innerWidth;
if (wide > 0) found.push(`${wide} pixels wider than the screen`);
return found;
