// What pages do: make changes by the API, and show what changed meanwhile. All words are in the
// pages; without this file each page can be read.

/* Times are those of the person's place, with the UTC that the page has in their title. */

const DAY = { dateStyle: "medium" };
const PARTS = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" };
const SHOWN = {
  day: DAY,
  minute: PARTS,
  second: { ...PARTS, second: "2-digit" },
  ms: { ...PARTS, second: "2-digit", fractionalSecondDigits: 3 },
};

function showTimes(inside) {
  for (const one of inside.querySelectorAll("time[data-to]:not([title])")) {
    const moment = new Date(one.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    one.title = `${one.dateTime.slice(0, one.dataset.to === "day" ? 16 : -1).replace("T", " ")} UTC`;
    one.textContent = moment.toLocaleString(document.documentElement.lang, SHOWN[one.dataset.to]);
  }
}

showTimes(document);
new MutationObserver(() => showTimes(document)).observe(document.body, { childList: true, subtree: true });

/* Changes.

A form or button with data-method, data-path and data-proof is sent to the API as JSON:
  data-type="integer|number|boolean|lines|json" on a field: what its text becomes; empty fields with
    data-optional are left out; fields of a name with a dot are inside an object
  data-body='{"a": 1}'  what is sent besides the fields
  data-match="ETAG"     sent as If-Match
  data-list on checkboxes of one name: the values of those that are ticked, as a list
  data-bearer on a field without a name: a token that is sent as the key of the request
  data-query="a=b"      added to the path
  data-key              sent with an Idempotency-Key of its own
  data-done="/path"     where to go afterwards, with {name} for a value of the answer; "stay" renews
                        the parts below; "none" leaves all to a script; without it, reload
  data-renews="id id"   ids of the parts that are renewed when it is done
  data-said="TEXT"      what was done, which is said once it is, with {name} as above
  data-undo='{"a": 1}'  what undoes it, which is offered beside that: a body, or nothing, for the
                        same path, or for data-undo-method and data-undo-path with {name} as above;
                        these values are those of the entry with the answer's id in the list that
                        data-undo-list names; data-undo-tag is the list whose tag is sent along, data-undo-done as data-done
An element with data-problem inside (or #outcome) shows the problem; one that has `words` is said by
the template of that id. The event `answered` has the answer and the element, for scripts of single
pages. */

export async function send(element, body, headers = {}) {
  const { method, path, proof, query } = element.dataset;
  const all = { accept: "application/json", "skillhouse-proof": proof, ...headers };
  if (body !== undefined) all["content-type"] = "application/json";
  if (element.dataset.match) all["if-match"] = element.dataset.match;
  const key = element.querySelector?.("[data-bearer]")?.value.trim();
  if (key) all.authorization = `Bearer ${key.replace(/^.*[?&]token=/, "")}`;
  if ("key" in element.dataset) all["idempotency-key"] = crypto.randomUUID();
  const address = query ? `${path}?${query}` : path;
  const request = { method, headers: all, body: body === undefined ? undefined : JSON.stringify(body) };
  try {
    let answer = await asked(address, request);
    if (answer.status === 403 && answer.value?.code === "proof-wanted") {
      // This browser was signed in again since the page was made: one new proof, and once more.
      const fresh = await asked(`/api/v1/proof?${new URLSearchParams({ method, path })}`);
      if (fresh.ok) {
        all["skillhouse-proof"] = element.dataset.proof = fresh.value.proof;
        answer = await asked(address, request);
      } else if (fresh.status === 401) answer = fresh;
    }
    return answer.status === 401 && !key ? { ...answer, value: { words: "signed-out" } } : answer;
  } catch {
    return { ok: false, status: 0, value: { words: "no-answer" } };
  }
}

async function asked(address, request) {
  const answer = await fetch(address, request);
  const text = await answer.text();
  const value = text ? JSON.parse(text) : null;
  return { ok: answer.ok, status: answer.status, value, etag: answer.headers.get("etag") };
}

export function fields(form) {
  const found = form.dataset.body ? JSON.parse(form.dataset.body) : {};
  for (const field of form.elements) {
    if (!field.name || field.disabled || (field.type === "radio" && !field.checked)) continue;
    if (field.value === "" && "optional" in field.dataset) continue;
    const names = field.name.split(".");
    const last = names.pop();
    let into = found;
    for (const name of names) into = into[name] ??= {};
    if ("list" in field.dataset) {
      into[last] ??= [];
      if (field.checked) into[last].push(field.value);
      continue;
    }
    into[last] = typed(field);
  }
  return found;
}

function typed(field) {
  if (field.type === "checkbox") return field.checked;
  const text = field.value;
  switch (field.dataset.type) {
    case "integer":
    case "number": return Number(text);
    case "boolean": return text === "true";
    case "lines": return text.split("\n").map((line) => line.trim()).filter(Boolean);
    case "json": return JSON.parse(text);
    default: return text;
  }
}

export function showProblem(element, problem) {
  const inside = element === document.body ? null : element.querySelector?.("[data-problem]");
  const place = inside ?? document.getElementById("outcome");
  const { detail, hint, code, words } = problem ?? {};
  const text = [detail, hint].filter(Boolean).join(". ");
  const had = place.id && place.contains(document.activeElement);
  if (words) place.replaceChildren(document.getElementById(words).content.cloneNode(true));
  else place.textContent = text;
  place.classList.toggle("is-problem", Boolean(detail || words));
  if (had) place.focus();
  if (code) named(code).then((name) => { if (name && place.textContent === text) place.textContent = `${name} (${text})`; });
}

/* What a problem is called in the language of the page; its detail is that of the API. */
let names = null;
async function named(code) {
  const { lang } = document.documentElement;
  if (lang === "en") return "";
  names ??= fetch(`/language/${lang}/problems`).then((answer) => (answer.ok ? answer.json() : {}), () => ({}));
  return (await names)[code];
}

async function act(element, body) {
  if (element.getAttribute("aria-busy")) return;
  const buttons = element.matches("form") ? [...element.querySelectorAll("button")] : [element];
  // Not `disabled`: the focus would be lost.
  const busy = [element, ...buttons];
  for (const one of busy) one.setAttribute("aria-busy", "true");
  const above = [];
  for (let one = element; one; one = one.parentElement) above.push(one);
  if (!element.closest("#outcome")) showProblem(element, null);
  const answer = await send(element, body);
  for (const one of busy) one.removeAttribute("aria-busy");
  // A live part may have been replaced meanwhile, and the element with it.
  const place = above.find((one) => one.isConnected);
  place.dispatchEvent(new CustomEvent("answered", { bubbles: true, detail: { ...answer, element } }));
  if (!answer.ok) return showProblem(element, answer.value);
  const { done, renews, said } = element.dataset;
  element.closest("dialog")?.close();
  const stays = done === "none" || done === "stay" || renews;
  if (said) {
    const what = { said: filled(said, answer.value, String), undo: await undoing(element.dataset, answer.value) };
    if (stays) say(what);
    else sessionStorage.setItem(SAID, JSON.stringify(what));
  }
  if (done === "none") return;
  if (stays) return renew(new Set(renews?.split(" ") ?? []));
  if (done) return location.assign(filled(done, answer.value));
  sessionStorage.setItem(FOCUSED, JSON.stringify([location.pathname, selectorOf(document.activeElement)]));
  location.reload();
}

function filled(text, value, as = encodeURIComponent) {
  return text.replace(/\{(\w+)\}/g, (all, name) => (value?.[name] === undefined ? all : as(value[name])));
}

/* What a button that undoes a change has as its data; nothing where it cannot be undone. */
async function undoing({ undo, undoMethod, undoPath, undoList, undoTag, undoDone, method, path, proof, done, renews }, value) {
  if (undo === undefined) return undefined;
  const list = undoList && (await asked(undoList).catch(() => null))?.value;
  const entry = undoList ? list?.[list.list]?.find(({ id }) => id === value.id) : value;
  const tag = undoTag && (await asked(undoTag).catch(() => null))?.etag;
  if ((undoList && !entry) || (undoTag && !tag)) return undefined;
  const data = { method: undoMethod ?? method, path: filled(undoPath ?? path, entry), renews };
  // A page that one was led to shows what is undone once it is loaded again.
  data.done = undoDone ?? (done === "none" || done === "stay" ? done : undefined);
  // Without a proof of this path the first answer is a refusal, after which one is asked for.
  data.proof = undoPath || undoMethod ? "" : proof;
  if (undo) data.body = undo;
  if (tag) data.match = tag;
  return data;
}

/* What was done, with a button that undoes it; also on the page to which it led. It goes after a
while, but not while a person points at it or is in it; a problem stays. */
const SAID = "skillhouse-said";
const FOCUSED = "skillhouse-focused";
const SAID_MS = 8000;
let fading = 0;

function say({ said, undo }) {
  const place = document.getElementById("outcome");
  const had = place.contains(document.activeElement);
  place.classList.remove("is-problem");
  place.textContent = said;
  if (undo) {
    const button = document.getElementById("undo").content.firstElementChild.cloneNode(true);
    const data = Object.entries(undo).filter(([, value]) => value !== undefined);
    Object.assign(button.dataset, Object.fromEntries(data));
    place.append(" ", button);
  }
  if (had) place.focus();
  clearTimeout(fading);
  fading = setTimeout(fade, SAID_MS);
}

function fade() {
  const place = document.getElementById("outcome");
  if (place.classList.contains("is-problem")) return;
  if (place.matches(":hover, :focus-within")) fading = setTimeout(fade, 1000);
  else place.replaceChildren();
}

document.addEventListener("keydown", ({ key }) => {
  const place = document.getElementById("outcome");
  if (key === "Escape" && !document.querySelector("dialog[open]")) place.replaceChildren();
});

/* What finds an element again in the page that is made next. */
function selectorOf(element) {
  if (!element || element === document.body) return "";
  if (element.id) return `#${CSS.escape(element.id)}`;
  const [name, value] = Object.entries(element.dataset).find(([key]) => key === "path" || key === "opens") ?? [];
  return name ? `[data-${name}="${CSS.escape(value)}"]` : "";
}

function focusOn(selector, otherwise) {
  const found = selector && document.querySelector(selector);
  const element = found || otherwise;
  if (!found && !element.hasAttribute("tabindex")) element.tabIndex = -1;
  element.focus({ preventScroll: true });
}

function taken(name) {
  const text = sessionStorage.getItem(name);
  sessionStorage.removeItem(name);
  return text && JSON.parse(text);
}

const kept = taken(SAID);
if (kept) say(kept);
const [page, selector] = taken(FOCUSED) ?? [];
if (page === location.pathname) focusOn(selector, document.getElementById("main"));

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.dataset.path) return;
  event.preventDefault();
  let body;
  try {
    body = fields(form);
  } catch (error) {
    return showProblem(form, { detail: error.message });
  }
  const pressed = event.submitter;
  if (pressed?.name) body[pressed.name] = pressed.value;
  act(form, form.dataset.method === "DELETE" && !Object.keys(body).length ? undefined : body);
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const { opens, closes } = button.dataset;
  if (opens) document.getElementById(opens).showModal();
  else if (closes !== undefined) button.closest("dialog").close();
  else if (button.dataset.path) act(button, button.dataset.body ? JSON.parse(button.dataset.body) : undefined);
});

/* Filter: `data-filter="id"` on a field hides the children of #id whose data-text has not all its
words, and writes their number into the element that `data-count` names. */

document.addEventListener("input", (event) => {
  const list = event.target.dataset?.filter;
  if (list) filter(event.target, document.getElementById(list));
});

export function filter(field, list) {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const item of list.children) {
    const text = item.dataset.text ?? "";
    item.hidden = !words.every((word) => text.includes(word));
    if (!item.hidden) shown += 1;
  }
  const count = document.getElementById(field.dataset.count);
  if (count) count.textContent = shown.toLocaleString(document.documentElement.lang);
}

/* Live parts: an element with an id and data-live="KIND KIND" is replaced by what the server shows
now when an event of these kinds comes. What a person types in is left alone. */

const renewed = new Set();
let timer = 0;

export function renewSoon(ids) {
  ids.forEach((id) => renewed.add(id));
  clearTimeout(timer);
  timer = setTimeout(() => { const now = new Set(renewed); renewed.clear(); renew(now); }, 120);
}

export async function renew(ids) {
  let text;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok) return;
    text = await answer.text();
  } catch {
    return; // The service is away; the next event or load shows what is there then.
  }
  const fresh = new DOMParser().parseFromString(text, "text/html");
  showTimes(fresh); // So that what is the same is not replaced.
  document.title = fresh.title;
  if (!ids.size) document.body.dataset.version = fresh.body.dataset.version ?? "";
  for (const id of ids.size ? ids : [...document.querySelectorAll("[data-live]")].map((one) => one.id)) {
    const [old, now] = [document.getElementById(id), fresh.getElementById(id)];
    const busy = old?.contains(document.activeElement) && document.activeElement.matches("input, textarea, select");
    for (const one of old?.querySelectorAll("details[open][id]") ?? []) {
      now?.querySelector(`#${CSS.escape(one.id)}`)?.setAttribute("open", "");
    }
    if (old && now && !busy && !old.isEqualNode(now) && !old.querySelector("dialog[open]")) {
      const had = old.contains(document.activeElement);
      const focused = had && selectorOf(document.activeElement);
      old.replaceWith(now);
      if (had) focusOn(focused, now);
    }
  }
  document.dispatchEvent(new CustomEvent("renewed"));
}

function happened(kind, data) {
  if (kind === "call" && data?.tool.startsWith("system:emergency-")) happened("stop", data);
  document.dispatchEvent(new CustomEvent(`house:${kind}`, { detail: data }));
  const ids = [...document.querySelectorAll("[data-live]")]
    .filter((one) => one.dataset.live.split(" ").includes(kind))
    .map((one) => one.id);
  if (ids.length) renewSoon(ids);
}

/* What changed after this page was made and before it listened is in no event: the whole page is
read again, unless it still is what it shows. */
async function catchUp() {
  const { version } = document.body.dataset;
  if (version) {
    try {
      const answer = await fetch("/version");
      if (answer.ok && (await answer.text()) === version) return;
    } catch {
      return; // The service is away; the stream of events comes back with a `reset`.
    }
  }
  document.dispatchEvent(new CustomEvent("house:reset"));
  if (document.querySelector("[data-live]")) renew(new Set());
}

/* One page of this browser reads the events and passes them on: a browser opens few connections. */

const KINDS = ["index", "question", "answer", "call", "progress", "job", "companion", "reset"];
const others = new BroadcastChannel("skillhouse-events");
const take = (kind, data) => (kind === "reset" ? catchUp() : happened(kind, data));
others.onmessage = ({ data: { kind, data } }) => {
  if (kind === "away") away(data);
  else if (kind === "back") back();
  else take(kind, data);
};

function listen() {
  const source = new EventSource("/api/v1/events");
  source.addEventListener("open", () => {
    others.postMessage({ kind: "back" });
    back();
    catchUp();
  });
  source.addEventListener("error", () => {
    const since = Date.now();
    others.postMessage({ kind: "away", data: since });
    away(since);
    // What was refused, or cut off in its answer, is not asked for again by the browser.
    if (source.readyState === EventSource.CLOSED) setTimeout(again, AGAIN_MS);
  });
  for (const kind of KINDS) {
    source.addEventListener(kind, (event) => {
      const data = event.data ? JSON.parse(event.data) : null;
      others.postMessage({ kind, data });
      take(kind, data);
    });
  }
  return new Promise(() => {}); // Holds the lock until this page is closed.
}

async function again() {
  let answer;
  try {
    answer = await fetch("/version");
  } catch {
    return setTimeout(again, AGAIN_MS);
  }
  if (answer.status === 401) isSignedOut();
  else listen();
}

/* A page that hears nothing says so, once the service has not come back for a moment. */

const AWAY_MS = 3000;
const AGAIN_MS = 5000;
let leaving = 0;

function away(since) {
  leaving ||= setTimeout(() => {
    const bar = document.getElementById("away-bar");
    bar.querySelector("[data-since]").textContent = new Date(since).toLocaleTimeString(document.documentElement.lang);
    bar.hidden = false;
    document.body.dataset.away = "";
  }, AWAY_MS);
}

function back() {
  clearTimeout(leaving);
  leaving = 0;
  document.getElementById("away-bar").hidden = true;
  delete document.body.dataset.away;
}

function isSignedOut() {
  back();
  showProblem(document.body, { words: "signed-out-now" });
}

if (navigator.locks) navigator.locks.request("skillhouse-events", listen);
else listen();
