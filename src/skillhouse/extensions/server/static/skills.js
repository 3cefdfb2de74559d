// The list of skills: filtered while a person types. The first rows are in the page, the others are
// asked for once it is there.

const [field, scope, client, problem, shown, none, rows] = ["q", "by-scope", "by-client", "by-problem", "shown", "none-fits", "rows"]
  .map((id) => document.getElementById(id));
const texts = new WeakMap();
// What was searched for is no filter until a person changes it.
let isTyped = false;

function textOf(row) {
  let text = texts.get(row);
  if (text === undefined) {
    text = [...row.children].filter((one) => !one.matches(".acts")).map((one) => one.textContent).join(" ").toLowerCase();
    texts.set(row, text);
  }
  return text;
}

function filter() {
  const words = isTyped ? field.value.toLowerCase().split(/\s+/).filter(Boolean) : [];
  let count = 0;
  for (const row of rows.children) {
    const { scope: its, clients, problems } = row.dataset;
    const fits =
      (!scope?.value || its === scope.value) &&
      (!client?.value || clients.split(" ").includes(client.value)) &&
      (!problem?.value || problems.split(" ").includes(problem.value)) &&
      (!words.length || words.every((word) => textOf(row).includes(word)));
    if (row.hidden === fits) row.hidden = !fits;
    if (fits) count += 1;
  }
  if (shown) shown.textContent = count.toLocaleString(document.documentElement.lang);
  none.hidden = count > 0 || !words.length;
}

const isFiltering = () => isTyped || scope?.value || client?.value || problem?.value;

async function fetched(address) {
  const answer = await fetch(address, { headers: { accept: "text/html" } });
  if (!answer.ok) return null;
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

async function complete() {
  const rest = await fetched(rows.dataset.rest);
  if (!rest) return;
  rows.append(...rest.getElementById("rows").children);
  document.getElementById("pages")?.remove();
  if (isFiltering()) filter();
}

async function renew() {
  const all = await fetched(rows.dataset.all);
  if (!all) return;
  const path = document.activeElement?.dataset.path;
  rows.replaceChildren(...all.getElementById("rows").children);
  document.getElementById("total").textContent = all.getElementById("total").textContent;
  for (const select of [scope, client, problem]) {
    const options = select && all.getElementById(select.id)?.children;
    if (!options) continue;
    const { value } = select;
    select.replaceChildren(...options);
    select.value = value;
    if (select.selectedIndex < 0) select.value = "";
  }
  filter();
  if (path) rows.querySelector(`[data-path="${CSS.escape(path)}"]`)?.focus();
}

let timer = 0;
function renewSoon() {
  clearTimeout(timer);
  timer = setTimeout(rows.dataset.all ? renew : () => location.reload(), 100);
}

field.addEventListener("input", () => { isTyped = true; filter(); });
for (const one of [scope, client, problem]) one?.addEventListener("input", filter);
document.addEventListener("answered", ({ detail }) => { if (detail.ok) renewSoon(); });
document.addEventListener("house:index", () => { if (rows.dataset.all) renewSoon(); });
if (rows.dataset.rest) complete();
