// Where to go, by a few letters: pages, actions and skills. The keys move and never change anything.

const KEPT = "skillhouse-keys";
const SKILLS_MOST = 8;
const WAIT_MS = 120;
const [dialog, field, list, places, help] = ["palette", "palette-q", "palette-list", "palette-places", "key-help"]
  .map((id) => document.getElementById(id));
let at = 0;
let timer = 0;
let asked = 0;

const letters = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);
const known = [...document.querySelectorAll(".places a, #stop-link"), ...places.content.querySelectorAll("a")];

function option(text, href, note = "") {
  const item = document.createElement("a");
  const name = document.createElement("span");
  item.role = "option";
  item.href = href;
  item.tabIndex = -1;
  name.textContent = text;
  item.append(name);
  if (note) {
    const small = document.createElement("small");
    small.textContent = note;
    item.append(small);
  }
  return item;
}

function choose(place) {
  const all = [...list.children];
  at = Math.min(Math.max(place, 0), Math.max(all.length - 1, 0));
  all.forEach((one, index) => {
    one.id = `palette-${index}`;
    one.setAttribute("aria-selected", String(index === at));
  });
  all[at]?.scrollIntoView({ block: "nearest" });
  field.setAttribute("aria-activedescendant", all.length ? `palette-${at}` : "");
}

function show() {
  const words = letters(field.value);
  const fits = known.filter((one) => words.every((word) => one.textContent.toLowerCase().includes(word)));
  list.replaceChildren(...fits.map((one) => option(one.firstChild.textContent.trim(), one.getAttribute("href"))));
  choose(0);
  clearTimeout(timer);
  if (words.length) timer = setTimeout(skills, WAIT_MS);
}

async function skills() {
  const mine = (asked += 1);
  const query = new URLSearchParams({ q: field.value.trim(), limit: SKILLS_MOST });
  const answer = await fetch(`/api/v1/library?${query}`).catch(() => null);
  if (!answer?.ok) return;
  const { skills: found } = await answer.json();
  if (mine !== asked || !dialog.open) return;
  list.append(...found.map((one) => option(one.name, `/skills/${encodeURIComponent(one.id || one.name)}`, one.description)));
  choose(at);
}

function open() {
  if (dialog.open) return;
  field.value = "";
  dialog.showModal();
  show();
}

field.addEventListener("input", show);
field.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) choose(at + step);
  else if (event.key === "Enter") list.children[at]?.click();
  else return;
  event.preventDefault();
});

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.repeat || event.altKey) return;
  const isCommand = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k";
  const isTyped = event.target.closest?.("input, textarea, select, dialog");
  if (isCommand) open();
  else if (event.ctrlKey || event.metaKey || isTyped || localStorage.getItem(KEPT) === "off") return;
  else if (event.key === "/") open();
  else if (event.key === "?") help.showModal();
  else if (event.key === "!") document.getElementById("stop-link").click();
  else return;
  event.preventDefault();
});
