// The list of skills. A page has at most 200 of them; with the first key or change the script gets a
// short index of all, filters that, and draws the rows that fit. What is chosen is in the address,
// so that Back and a link keep it.

import { send, showProblem } from "./app.js";

const byId = (id) => document.getElementById(id);
const [field, scope, client, state, agent, shown, none, rows, list, clear, pages] = ["q", "by-scope", "by-client", "by-problem", "by-agent", "shown", "none-fits", "rows", "list", "clear", "pages"].map(byId);
const { query } = list.dataset;
const MOST = Number(list.dataset.rows);
const FIRST = 40; // Rows that are drawn at once; those below them follow in a moment.
const KEPT_MOST = 1000;
const asked = new URLSearchParams(location.search);
const { lang } = document.documentElement;
const number = (value) => value.toLocaleString(lang);
const textOf = (value) => (value ? number(value) : "");
// What was searched for is no filter until a person changes it.
let words = asked.get("words") ?? "";
let sort = asked.get("sort") ?? "";
let page = 1;

/* The address. */

function chosen() {
  const found = { words: words.trim(), scope: scope?.value, client: client?.value, state: state?.value };
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value));
}

function addressOf(filters, more = {}) {
  const all = { q: query, ...filters, agent: agent?.value, sort, columns: columnsText(), ...more };
  const kept = new URLSearchParams(Object.entries(all).filter(([, value]) => value));
  return `/${kept.size ? `?${kept}` : ""}`;
}

/* Columns: those of the address, or else those that this browser had last. */

const COLUMNS = "skillhouse-columns";
const boxes = [...document.querySelectorAll("#view [name=columns][value]:not([type=hidden])")];
const usual = boxes.filter((box) => box.defaultChecked).map((box) => box.value).join(",");
let isUsual = !asked.has("columns");

function columnsText() {
  if (isUsual) return "";
  return boxes.filter((box) => box.checked).map((box) => box.value).join(",") || "none";
}

function showColumns() {
  for (const box of boxes) list.classList.toggle(`no-${box.value}`, !box.checked);
}

function kept() {
  try {
    return localStorage.getItem(COLUMNS);
  } catch {
    return null;
  }
}

if (isUsual && kept() !== null) {
  const wanted = kept().split(",");
  for (const box of boxes) box.checked = wanted.includes(box.value);
  showColumns();
}

byId("view")?.addEventListener("change", ({ target }) => {
  if (target.id === "by-sort") {
    sort = target.value;
    location.assign(addressOf(chosen()));
    return;
  }
  const now = boxes.filter((box) => box.checked).map((box) => box.value).join(",");
  isUsual = !asked.has("columns") && now === usual;
  try {
    localStorage.setItem(COLUMNS, now || "none");
  } catch {
    // A browser that keeps nothing has it in the address all the same.
  }
  showColumns();
  history.replaceState(null, "", addressOf(chosen()));
});

/* The index. INVARIANT: a word fits by the rule of `plain_letters` in the server. */

const plain = (text) => (/^[\x00-\x7f]*$/.test(text) ? text : text.normalize("NFKD").replace(/[\u0300-\u036f]/g, "")).toUpperCase();
const wordsOf = (text) => plain(text).split(/(?:(?!\ufeff)[\s\x1c-\x1f\x85])+/).filter(Boolean);
const FIELDS = ["kind", "key", "reference", "name", "description", "isPath", "state", "listing", "effect", "scope", "clients", "language", "tools", "tokens", "loaded", "used", "findings", "reason", "edit", "isOn", "isSwitchable", "isDeletable", "more", "isWhole"];

class Row {
  constructor(values, index) {
    FIELDS.forEach((name, at) => { this[name] = values[at]; });
    this.problems = index.kinds[this.kind];
    this.clients = index.clients[this.clients];
    const own = this.isWhole ? [this.name, this.isPath ? "" : this.description] : [];
    this.text = plain([...own, this.more, this.scope, this.language, this.key].join("\n"));
    this.same = values.slice(1, -2).join("\n");
  }
}

function fitting(among, { scope: wanted, client: by, state: problem }, parts) {
  const every = [];
  for (const row of among) {
    if ((wanted && row.scope !== wanted) || (by && !row.clients.includes(by)) || (problem && !row.problems.includes(problem))) continue;
    let fits = true;
    for (const part of parts) if (!row.text.includes(part)) { fits = false; break; }
    if (fits) every.push(row);
  }
  return every;
}

let tag = "";
let index = null; // All rows, in their order.
let loading = null;
// Of a search the rows are those that are in the page.
const found = query ? [...rows.children].map((one) => one.dataset.key) : null;

async function fetchIndex() {
  const more = new URLSearchParams(Object.entries({ agent: agent?.value, sort }).filter(([, value]) => value));
  const answer = await fetch(`/skills-index${more.size ? `?${more}` : ""}`, { headers: tag ? { "if-none-match": tag } : {} });
  if (answer.status === 304) return;
  if (!answer.ok) throw new Error(String(answer.status));
  const value = await answer.json();
  tag = answer.headers.get("etag") ?? "";
  let fresh = value.rows.map((one) => new Row(one, value));
  if (found) {
    const places = new Map(fresh.map((one) => [one.key, one]));
    fresh = found.map((key) => places.get(key)).filter(Boolean);
  }
  index = index ? inPlace(fresh, index) : fresh;
}

// A row stays where it is until the next load; one that is new comes after the one before it.
function inPlace(fresh, before) {
  const now = new Map(fresh.map((one) => [one.key, one]));
  const known = new Set(before.map((one) => one.key));
  const after = new Map();
  let last = "";
  for (const one of fresh) {
    if (known.has(one.key)) last = one.key;
    else after.set(last, [...(after.get(last) ?? []), one]);
  }
  const steady = [...(after.get("") ?? [])];
  for (const { key } of before) {
    if (now.has(key)) steady.push(now.get(key), ...(after.get(key) ?? []));
  }
  return steady;
}

function load() {
  if (index) return Promise.resolve();
  loading ??= fetchIndex().finally(() => { loading = null; });
  return loading;
}

/* Drawing. */

const elements = new Map(); // By keys, with the values that they show; "" is what the server drew.
for (const one of rows.children) elements.set(one.dataset.key, { element: one, same: "" });
const names = Object.fromEntries([...byId("words").content.querySelectorAll("[data-word]")].map((one) => [one.dataset.word, one.textContent]));
const encoded = (text) => encodeURIComponent(text.replace(/[\ud800-\udfff]/gu, "?")).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`).replaceAll("%3A", ":");

function withCode(place, text) {
  const parts = text.split("`");
  if (parts.length % 2 === 0 || parts.some((part, at) => at % 2 && !part)) return place.replaceChildren(text);
  place.replaceChildren(...parts.map((part, at) => {
    if (at % 2 === 0) return part;
    const code = document.createElement("code");
    code.textContent = part;
    return code;
  }));
}

function drawn(row) {
  const { element, same } = elements.get(row.key) ?? {};
  if (element && (same === row.same || same === "")) return element;
  const made = byId(row.isOn ? "row-on" : "row-off").content.firstElementChild.cloneNode(true);
  const [pick, name, description, its, listing, from, tools, clients, tokens, loaded, used, findings, acts] = made.children;
  made.dataset.key = row.key;
  made.classList.toggle("is-off", !row.isOn);
  made.classList.toggle("is-wrong", Boolean(row.reason));
  for (const one of made.querySelectorAll(".unseen")) one.textContent = one.textContent.replace("{name}", () => row.name);
  const link = name.firstElementChild;
  link.firstElementChild.textContent = row.name;
  if (row.reference) link.href = `/skills/${encoded(row.reference)}`;
  else {
    const text = document.createElement("span");
    text.className = "name";
    text.append(...link.childNodes);
    link.replaceWith(text);
  }
  const [about, why] = description.children;
  about.textContent = row.description;
  about.classList.toggle("path", Boolean(row.isPath));
  if (row.reason) withCode(why, row.reason);
  else why.remove();
  const badge = its.firstElementChild;
  badge.textContent = names[row.state] ?? row.state;
  badge.classList.toggle("state-plain", row.state === "in-use");
  badge.classList.toggle("state-wrong", ["broken", "edited", "refused", "missing", "denied"].includes(row.state));
  if (row.effect && row.state === "in-use") {
    const effect = document.createElement("span");
    effect.className = `effect effect-${row.effect}`;
    effect.textContent = names[row.effect];
    its.append(" ", effect);
  }
  const texts = [names[row.listing] ?? "", row.scope, row.language ? `${row.language} · ${row.tools}` : "", row.clients.join(", "), textOf(row.tokens), textOf(row.loaded)];
  [listing, from, tools, clients, tokens, loaded].forEach((cell, at) => { cell.textContent = texts[at]; });
  if (row.used) {
    const time = document.createElement("time");
    time.dateTime = row.used;
    time.dataset.to = "day";
    time.textContent = row.used.slice(0, 10);
    used.append(time);
  }
  findings.textContent = textOf(row.findings);
  const edit = acts.querySelector("a");
  if (row.edit) edit.href = row.edit;
  else edit.remove();
  const button = acts.querySelector(".switch");
  if (button && row.isSwitchable) {
    // Of another path: its proof comes with the first change.
    Object.assign(button.dataset, { path: switchPath(row), proof: "", said: button.dataset.said.replace("{name}", () => row.name) });
  } else button?.remove();
  if (!row.reference) acts.querySelector(".peek").remove();
  const box = pick.querySelector("input");
  if (!row.isSwitchable) pick.replaceChildren();
  else if (box) {
    box.toggleAttribute("data-deletable", Boolean(row.isDeletable));
    box.checked = picked.has(row.key);
  }
  if (elements.size > KEPT_MOST) elements.clear();
  elements.set(row.key, { element: made, same: row.same });
  return made;
}

const switchPath = (row) => `/api/v1/skills/${encoded(row.reference)}/enabled`;
let rest = 0;

function draw(every) {
  const last = Math.max(1, Math.ceil(every.length / MOST));
  page = Math.min(page, last);
  const now = every.slice((page - 1) * MOST, page * MOST);
  clearTimeout(rest);
  rows.replaceChildren(...now.slice(0, FIRST).map(drawn));
  if (now.length > FIRST) rest = setTimeout(() => rows.append(...now.slice(FIRST).map(drawn)));
  shown.textContent = number(every.length);
  none.hidden = every.length > 0 || !words.trim();
  pages.hidden = last === 1;
  pages.querySelector("[data-page]").textContent = number(page);
  pages.querySelector("[data-pages]").textContent = number(last);
  for (const [link, to] of [[pages.querySelector("[rel=prev]"), page - 1], [pages.querySelector("[rel=next]"), page + 1]]) {
    link.hidden = to < 1 || to > last;
    link.href = `${addressOf(chosen(), { page: to })}#skills`;
  }
}

// What one types on fits among what fitted before.
let before = { of: null, key: "", text: "", rows: [] };

function filter() {
  const filters = chosen();
  const { words: text = "", ...others } = filters;
  const key = JSON.stringify(others);
  const isLonger = before.of === index && before.key === key && text.startsWith(before.text);
  before = { of: index, key, text, rows: fitting(isLonger ? before.rows : index, filters, wordsOf(text)) };
  draw(before.rows);
}

async function apply() {
  page = 1;
  const filters = chosen();
  history.replaceState(null, "", addressOf(filters));
  if (clear) clear.hidden = !Object.keys(filters).length;
  if (index) return filter();
  rows.setAttribute("aria-busy", "true");
  try {
    await load();
  } catch {
    return; // The service is away, which the page says; Enter asks it again.
  } finally {
    rows.removeAttribute("aria-busy");
  }
  filter();
}

// What the list can be filtered by, with the number of rows of each.
function renewChoices() {
  const order = Object.keys(names);
  const by = (a, b) => order.indexOf(a) - order.indexOf(b);
  const each = [[scope, (row) => [row.scope], null], [client, (row) => row.clients, (a, b) => (a < b ? -1 : 1)], [state, (row) => row.problems, by]];
  for (const [select, values, sorted] of each) {
    if (!select) continue;
    const counts = new Map();
    for (const row of index) for (const one of values(row)) if (one) counts.set(one, (counts.get(one) ?? 0) + 1);
    const { value } = select;
    if (value && !counts.has(value)) counts.set(value, 0);
    const every = sorted ? [...counts].sort(([a], [b]) => sorted(a, b)) : [...counts];
    select.replaceChildren(select.options[0], ...every.map(([one, count]) => new Option(`${select === state ? names[one] ?? one : one} (${number(count)})`, one)));
    select.value = value;
  }
}

// Rows that changed are drawn where they are, with the focus in them kept.
async function renewRows() {
  try {
    await (loading ?? fetchIndex());
  } catch {
    return;
  }
  const places = new Map(index.map((one) => [one.key, one]));
  byId("total").textContent = byId("total").textContent.replace(/[\d,.\s]*\d/, (old) => (old.startsWith(" ") ? " " : "") + number(index.length));
  renewChoices();
  const at = document.activeElement;
  const of = at?.closest?.("#rows > tr")?.dataset.key;
  const isButton = at?.matches?.(".switch");
  let isOther = false;
  for (const one of [...rows.children]) {
    const { key } = one.dataset;
    const row = places.get(key);
    if (!row) {
      one.remove();
      isOther = true;
    } else if ((elements.get(key)?.same ?? "") !== row.same && differs(one, row)) {
      elements.delete(key);
      one.replaceWith(drawn(row));
    }
  }
  const filters = chosen();
  const isWhole = !Object.keys(filters).length && page === 1 && !asked.get("page");
  const has = new Set([...rows.children].map((one) => one.dataset.key));
  if (isWhole && (isOther || index.slice(0, MOST).some((one) => !has.has(one.key)))) filter();
  if (of) {
    const place = [...rows.children].find((one) => one.dataset.key === of);
    (place?.querySelector(isButton ? ".switch" : "a, button") ?? field).focus();
  }
  showChosen();
}

// Whether what the server drew is something else by now.
function differs(element, row) {
  if (elements.get(row.key)?.same) return true;
  const button = element.querySelector(".switch");
  return element.classList.contains("is-off") === Boolean(row.isOn) || Boolean(button) !== Boolean(row.isSwitchable && byId("bulk")) ||
    element.querySelector(".description").textContent !== row.description || element.querySelector(".state").textContent !== (names[row.state] ?? row.state);
}

let timer = 0;
function renewSoon() {
  clearTimeout(timer);
  timer = setTimeout(renewRows, 120);
}

field.addEventListener("focus", () => load().catch(() => {}));
field.addEventListener("input", () => { words = field.value; apply(); });
for (const one of [scope, client, state]) one?.addEventListener("input", apply);
// How a model hears of a skill is another thing for each agent.
agent?.addEventListener("input", () => location.assign(addressOf(chosen())));
document.addEventListener("answered", ({ detail }) => {
  if (detail.ok && detail.element.closest("#rows, #outcome, .outcome, .toast")) renewRows();
});
document.addEventListener("house:index", renewSoon);
document.addEventListener("keydown", (event) => {
  // Here the search is that of the list; Ctrl-K leads to everything.
  const isOff = localStorage.getItem("skillhouse-keys") === "off";
  if (event.key !== "/" || isOff || event.target.closest?.("input, textarea, select, dialog")) return;
  event.preventDefault();
  field.focus();
  field.select();
}, true);

/* What is chosen, and changed together after one question that names the number. */

const picked = new Map();
const [bar, dialog, all] = ["chosen", "bulk", "pick-all"].map(byId);

function showChosen() {
  if (!bar) return;
  bar.hidden = picked.size === 0;
  bar.querySelector("[data-count]").textContent = number(picked.size);
  const every = [...rows.querySelectorAll(".c-pick input")];
  for (const box of every) box.checked = picked.has(box.closest("tr").dataset.key);
  all.checked = every.length > 0 && every.every((box) => box.checked);
  all.indeterminate = !all.checked && every.some((box) => box.checked);
}

function choose(box, isOn) {
  const row = box.closest("tr");
  if (!isOn) return picked.delete(row.dataset.key);
  const { dataset } = row.querySelector(".switch");
  const name = row.querySelector(".name").textContent;
  return picked.set(row.dataset.key, { name, path: dataset.path, proof: dataset.proof, isDeletable: "deletable" in box.dataset });
}

function texts(place, what, count) {
  for (const one of place.querySelectorAll("[data-for]")) one.hidden = one.dataset.for !== what;
  for (const one of place.querySelectorAll("[data-count]")) one.textContent = number(count);
}

list.addEventListener("change", ({ target }) => {
  if (target === all) for (const box of rows.querySelectorAll(".c-pick input")) choose(box, all.checked);
  else if (target.closest(".c-pick")) choose(target, target.checked);
  showChosen();
});

let agreed = null;
bar?.addEventListener("click", ({ target }) => {
  const what = target.closest("[data-bulk]")?.dataset.bulk;
  if (!what) return;
  if (what === "none") {
    picked.clear();
    showChosen();
    field.focus();
    return;
  }
  const every = [...picked].filter(([, one]) => what !== "delete" || one.isDeletable);
  const left = picked.size - every.length;
  texts(dialog, what, every.length);
  const note = dialog.querySelector("[data-left]");
  note.hidden = !left;
  note.querySelector("span").textContent = number(left);
  const some = every.slice(0, 10).map(([, one]) => one.name);
  if (every.length > some.length) some.push("…");
  dialog.querySelector("[data-names]").replaceChildren(...some.map((name) => Object.assign(document.createElement("li"), { textContent: name })));
  dialog.querySelector("[data-agree]").disabled = !every.length;
  agreed = { what, every };
  dialog.showModal();
});

async function change(what, every) {
  const outcome = byId("outcome");
  const done = [];
  let problem = null;
  for (const [key, one] of every) {
    const path = what === "delete" ? one.path.replace(/\/enabled$/, "") : one.path;
    const change = document.createElement("button");
    Object.assign(change.dataset, { method: what === "delete" ? "DELETE" : "PUT", path, proof: what === "delete" ? "" : one.proof });
    const answer = await send(change, what === "delete" ? undefined : { enabled: what === "enable" });
    if (!answer.ok) {
      problem = answer.value;
      break;
    }
    done.push([key, one]);
    picked.delete(key);
  }
  await renewRows();
  showChosen();
  const said = byId("bulk-said").content.cloneNode(true);
  for (const one of said.querySelectorAll("[data-for]")) if (one.dataset.for !== what) one.remove();
  texts(said, what, done.length);
  if (problem) {
    showProblem(document.body, problem);
    return;
  }
  outcome.classList.remove("is-problem");
  outcome.replaceChildren(said);
  if (what === "delete") return;
  const undo = byId("undo").content.firstElementChild.cloneNode(true);
  undo.addEventListener("click", async () => {
    await change(what === "enable" ? "disable" : "enable", done);
    outcome.focus();
  });
  outcome.append(" ", undo);
}

dialog?.querySelector("[data-agree]").addEventListener("click", async () => {
  const { what, every } = agreed;
  dialog.close();
  bar.setAttribute("aria-busy", "true");
  await change(what, every);
  bar.removeAttribute("aria-busy");
  if (bar.hidden) all.focus();
});

/* A panel with the summary of a skill, from its page; the link itself leads to that page. */

const [panel, title, body, open] = ["panel", "panel-title", "panel-body", "panel-open"].map(byId);
const WIDE = matchMedia("(min-width: 75rem)");
let opener = null;
let wanted = "";

function closePanel() {
  if (panel.hidden) return;
  panel.hidden = true;
  wanted = "";
  rows.querySelector("[aria-current]")?.removeAttribute("aria-current");
  (opener?.isConnected ? opener : field).focus();
}

async function showPanel(row) {
  const link = row.querySelector("a.name");
  const { href } = link;
  wanted = href;
  rows.querySelector("[aria-current]")?.removeAttribute("aria-current");
  row.setAttribute("aria-current", "true");
  opener = row.querySelector(".peek") ?? link;
  title.textContent = link.textContent;
  open.href = href;
  body.replaceChildren(row.querySelector(".description").cloneNode(true));
  panel.hidden = false;
  panel.focus();
  const answer = await fetch(href, { headers: { accept: "text/html" } }).catch(() => null);
  if (wanted !== href || !answer?.ok) return;
  const its = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (wanted !== href) return;
  const about = row.querySelector(".c-clients");
  const clients = document.createElement("p");
  clients.className = "note";
  if (about.textContent) clients.textContent = `${about.dataset.label}: ${about.textContent}`;
  const tools = document.createElement("ul");
  for (const one of its.querySelectorAll("details.tool > summary")) {
    const item = document.createElement("li");
    item.append(...one.childNodes);
    tools.append(item);
  }
  const parts = its.querySelectorAll("main > .lead, main > .notice, main > .facts, main > section:has(> #findings-title), #calls, #clients");
  body.replaceChildren(...parts, clients, ...(tools.children.length ? [tools] : []));
  for (const one of body.querySelectorAll("form, button, .buttons, .acts, details:not(.tool)")) one.remove();
  for (const one of body.querySelectorAll("[id], [data-live], [data-load]")) {
    for (const name of ["id", "data-live", "data-load", "aria-labelledby"]) one.removeAttribute(name);
  }
  for (const one of body.querySelectorAll("h2")) {
    const head = document.createElement("h3");
    head.append(...one.childNodes);
    one.replaceWith(head);
  }
}

rows.addEventListener("click", (event) => {
  const row = event.target.closest("tr");
  if (!row || !WIDE.matches || !row.querySelector("a.name")) return;
  const isPeek = event.target.closest(".peek");
  if (!isPeek && (event.target.closest("a, button, input, label") || String(getSelection()))) return;
  showPanel(row);
});
byId("panel-close").addEventListener("click", closePanel);
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  const view = byId("view");
  if (view?.open && view.contains(event.target)) {
    view.open = false;
    view.querySelector("summary").focus();
  } else closePanel();
});
