// The letter keys of the approvals. They move the focus and never press anything: what a person
// decides is what has the focus and is pressed with Enter or a click.

const KEPT = "skillhouse-keys";
const GUARD_MS = 600;

function isOff() {
  return localStorage.getItem(KEPT) === "off";
}

function moved(step) {
  const all = [...document.querySelectorAll("[data-question]")];
  if (all.length) {
    const here = document.activeElement.closest("li")?.querySelector("[data-question]");
    const at = all.indexOf(here);
    return all[at < 0 ? 0 : Math.min(Math.max(at + step, 0), all.length - 1)].focus();
  }
  document.querySelector(step > 0 ? "a[rel=next]" : "a[rel=prev]")?.click();
}

document.addEventListener("keydown", (event) => {
  const isTyped = event.target.closest?.("input, textarea, select, dialog");
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || isTyped || isOff()) return;
  if (event.key === "j") moved(1);
  else if (event.key === "k") moved(-1);
  else if (event.key === "a" || event.key === "d") {
    const card = document.activeElement.closest("[data-card]") ?? document;
    card.querySelector(`[data-keys="${event.key}"]`)?.focus();
  } else return;
  event.preventDefault();
});

/* A click that was meant for the page before, or for the card that was here before, approves
nothing: buttons wait a moment, those of a list whenever it changes. */

const guarded = new WeakSet();

function guard() {
  for (const button of document.querySelectorAll("[data-guarded]")) {
    if (guarded.has(button)) continue;
    guarded.add(button);
    button.disabled = true;
    setTimeout(() => (button.disabled = false), GUARD_MS);
  }
}

function showSwitch() {
  const field = document.getElementById("keys-on");
  if (field) field.checked = !isOff();
}

document.addEventListener("change", (event) => {
  if (event.target.id === "keys-on") localStorage.setItem(KEPT, event.target.checked ? "on" : "off");
});

document.addEventListener("renewed", () => { guard(); showSwitch(); });
guard();
showSwitch();
