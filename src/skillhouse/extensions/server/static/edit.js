// Writing a skill: findings at their lines and a preview while a person types.

import { send, showProblem } from "./app.js";
import { showText } from "./skill.js";

const WAIT_MS = 250;
const LINE_EM = 1.55;
const form = document.getElementById("writing");
const [check, render, findings, preview] = ["check", "render", "findings", "preview"].map((id) => document.getElementById(id));
const area = form.querySelector(".editor textarea");
const gutter = form.querySelector(".gutter");
const isNew = area.name === "instructions";
const initial = area.value;
let isSaved = false;

/* The text as it would be in the file, and the number of its lines before those of the area. */
function whole() {
  if (!isNew) return [area.value, 0];
  const head = `---\nname: ${form.elements.name.value}\ndescription: ${JSON.stringify(form.elements.description.value)}\n---\n\n`;
  return [head + area.value, head.split("\n").length - 1];
}

function number(marks) {
  const lines = area.value.split("\n").length;
  gutter.replaceChildren(...Array.from({ length: lines }, (_, at) => {
    const one = document.createElement("li");
    const severity = marks.get(at + 1);
    if (severity) one.className = `at-${severity}`;
    return one;
  }));
  gutter.scrollTop = area.scrollTop;
}

function go(line) {
  const lines = area.value.split("\n");
  const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  area.focus();
  area.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
  area.scrollTop = Math.max(0, (line - 5) * LINE_EM * parseFloat(getComputedStyle(area).fontSize));
}

function show({ diagnostics, preview: found }, before) {
  const marks = new Map();
  findings.replaceChildren(...diagnostics.map((one) => {
    const template = document.getElementById("finding");
    const item = template.content.cloneNode(true);
    const severity = item.querySelector(".severity");
    severity.textContent = template.dataset[one.severity] ?? one.severity;
    severity.classList.add(`severity-${one.severity}`);
    const message = item.querySelector(".message");
    message.textContent = [one.message, one.hint].filter(Boolean).join("; ");
    const text = JSON.parse(template.dataset.texts)[one.code];
    if (text) {
      item.querySelector(".own").textContent = text;
      message.classList.add("note");
      message.lang = "en";
    }
    const line = (one.line ?? 0) - before;
    const button = item.querySelector(".go");
    if (line > 0) {
      if (marks.get(line) !== "error") marks.set(line, one.severity);
      button.querySelector(".number").textContent = line;
      button.addEventListener("click", () => go(line));
    } else button.remove();
    return item;
  }));
  number(marks);
  document.getElementById("unchecked").hidden = true;
  document.getElementById("no-findings").hidden = diagnostics.length > 0;
  document.getElementById("costs").hidden = !found;
  if (found) {
    document.getElementById("catalog-tokens").textContent = found.catalog_tokens.toLocaleString(document.documentElement.lang);
    document.getElementById("body-tokens").textContent = found.body_tokens.toLocaleString(document.documentElement.lang);
  }
}

/* Why neither the findings nor the preview are those of the text: the service is away, for example. */
let wasRefused = false;
function showRefusal(answers) {
  const refused = answers.find((one) => one && [0, 401, 403].includes(one.status));
  if (refused || wasRefused) showProblem(form, refused?.value);
  wasRefused = Boolean(refused);
  return wasRefused;
}

let asked = 0;
async function look() {
  const mine = ++asked;
  const [text, before] = whole();
  const name = isNew ? form.elements.name.value : form.dataset.directory;
  const body = text.replace(/^---\n[^]*?\n---[ \t]*(\n|$)/, "");
  const [checked, rendered] = await Promise.all([
    name ? send(check, { name, text }) : null,
    send(render, { text: body }),
  ]);
  if (mine !== asked) return; // A later text is being looked at.
  if (checked?.ok) show(checked.value, before);
  if (showRefusal([checked, rendered])) return;
  const { markup } = rendered.ok ? rendered.value : { markup: null };
  document.getElementById("too-long").hidden = markup !== null;
  preview.hidden = markup === null;
  // The server has made it of a few tags without attributes that act.
  preview.replaceChildren(...new DOMParser().parseFromString(markup ?? "", "text/html").body.childNodes);
}

let timer = 0;
form.addEventListener("input", () => {
  number(new Map());
  clearTimeout(timer);
  timer = setTimeout(look, WAIT_MS);
});
area.addEventListener("scroll", () => { gutter.scrollTop = area.scrollTop; });
area.addEventListener("keydown", (event) => {
  if (event.key === "s" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    form.requestSubmit();
  }
});
addEventListener("beforeunload", (event) => {
  if (!isSaved && area.value !== initial) event.preventDefault();
});
number(new Map());
look();
/* A finding elsewhere leads to its line here. */
const wanted = /^#L([0-9]{1,6})$/.exec(location.hash);
if (wanted && !isNew) go(Number(wanted[1]));

/* Another text is in the file by now: a person chooses, and theirs is not lost meanwhile. */

const conflict = document.getElementById("conflict");

form.addEventListener("answered", async ({ detail }) => {
  isSaved = detail.ok;
  if (detail.ok && conflict) conflict.hidden = true;
  if (detail.status !== 412 || !conflict) return;
  const answer = await fetch(form.dataset.path, { headers: { accept: "application/json" } });
  if (!answer.ok) return;
  const { text, digest } = await answer.json();
  showText(conflict.querySelector("[data-theirs]"), text);
  conflict.hidden = false;
  conflict.querySelector("[data-over]").onclick = () => {
    form.dataset.match = digest;
    form.requestSubmit();
  };
  conflict.querySelector("[data-take]").onclick = () => {
    form.dataset.match = digest;
    area.value = text;
    conflict.hidden = true;
    look();
  };
});
