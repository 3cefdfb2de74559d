// The list of skills: filtered while a person types, by what is in the address, so that Back and a
// link keep it. A list that is whole in the page is filtered here; of a longer one the server gives
// the rows that fit, a page at a time.

const [field, scope, client, state, shown, none, rows, clear] = ["q", "by-scope", "by-client", "by-problem", "shown", "none-fits", "rows", "clear"]
  .map((id) => document.getElementById(id));
const agent = document.getElementById("by-agent");
const RENEWED = ["rows", "pages", "counts", "total", "shown"];
const texts = new WeakMap();
const { query } = rows.dataset;
// What was searched for is no filter until a person changes it.
let words = new URLSearchParams(location.search).get("words") ?? "";

function chosen() {
  const found = { words: words.trim(), scope: scope?.value, client: client?.value, state: state?.value };
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value));
}

function addressOf(filters) {
  const all = new URLSearchParams({ ...(query ? { q: query } : {}), ...filters, ...(agent?.value ? { agent: agent.value } : {}) });
  return `/${all.size ? `?${all}` : ""}`;
}

function textOf(row) {
  let text = texts.get(row);
  if (text === undefined) {
    text = [...row.children].filter((one) => !one.matches(".acts")).map((one) => one.textContent).join(" ").toLowerCase();
    texts.set(row, text);
  }
  return text;
}

function filterHere() {
  const filters = chosen();
  const parts = (filters.words ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const row of rows.children) {
    const { scope: its, clients, problems } = row.dataset;
    const fits =
      (!filters.scope || its === filters.scope) &&
      (!filters.client || clients.split(" ").includes(filters.client)) &&
      (!filters.state || problems.split(" ").includes(filters.state)) &&
      parts.every((part) => textOf(row).includes(part));
    if (row.hidden === fits) row.hidden = !fits;
    if (fits) count += 1;
  }
  if (shown) shown.textContent = count.toLocaleString(document.documentElement.lang);
  none.hidden = count > 0 || !parts.length;
}

// Of two answers the later one asked for is shown.
let asked = 0;
async function fetchRows(address) {
  const mine = (asked += 1);
  rows.setAttribute("aria-busy", "true");
  const answer = await fetch(address, { headers: { accept: "text/html" } }).catch(() => null);
  if (mine !== asked) return;
  rows.removeAttribute("aria-busy");
  if (!answer?.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (mine !== asked) return;
  const path = document.activeElement?.dataset.path;
  for (const id of RENEWED) {
    const [from, to] = [page.getElementById(id), document.getElementById(id)];
    if (from && to) to.replaceChildren(...from.childNodes);
  }
  rows.toggleAttribute("data-whole", "whole" in page.getElementById("rows").dataset);
  for (const select of [scope, client, state]) {
    const options = select && page.getElementById(select.id)?.children;
    if (!options) continue;
    const { value } = select;
    select.replaceChildren(...options);
    select.value = value;
    if (select.selectedIndex < 0) select.value = "";
  }
  none.hidden = page.getElementById("none-fits").hidden;
  if ("whole" in rows.dataset) filterHere();
  if (path) rows.querySelector(`[data-path="${CSS.escape(path)}"]`)?.focus();
}

function apply() {
  const filters = chosen();
  history.replaceState(null, "", addressOf(filters));
  if (clear) clear.hidden = !Object.keys(filters).length;
  if ("whole" in rows.dataset) filterHere();
  else ask();
}

// One request at a time, and after it one for what was typed meanwhile.
let isAsking = false;
let isStale = false;
async function ask() {
  isStale = isAsking;
  if (isAsking) return;
  isAsking = true;
  await fetchRows(location.href);
  isAsking = false;
  if (isStale) ask();
}

let timer = 0;
function later(act) {
  clearTimeout(timer);
  timer = setTimeout(act, 120);
}

const renewSoon = () => later(() => fetchRows("whole" in rows.dataset ? addressOf({}) : location.href));

field.addEventListener("input", () => { words = field.value; apply(); });
for (const one of [scope, client, state]) one?.addEventListener("input", apply);
// How a model hears of a skill is another thing for each agent.
agent?.addEventListener("input", () => { delete rows.dataset.whole; apply(); });
document.addEventListener("answered", ({ detail }) => { if (detail.ok) renewSoon(); });
document.addEventListener("house:index", renewSoon);
document.addEventListener("keydown", (event) => {
  // Here the search is that of the list; Ctrl-K leads to everything.
  const isOff = localStorage.getItem("skillhouse-keys") === "off";
  if (event.key !== "/" || isOff || event.target.closest?.("input, textarea, select, dialog")) return;
  event.preventDefault();
  field.focus();
  field.select();
}, true);
