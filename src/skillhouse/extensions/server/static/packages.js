// Packages: work that takes long has a page of its own, to which the answer leads.

import { fields, renew } from "./app.js";

const POLL_MS = 2000;

document.addEventListener("answered", ({ detail }) => {
  const { element } = detail;
  if (!detail.ok || !("job" in element.dataset)) return;
  const asked = element.matches("form") ? fields(element) : JSON.parse(element.dataset.body ?? "{}");
  delete asked.agreed;
  const request = new URLSearchParams({ request: JSON.stringify(asked) });
  location.assign(`/packages/jobs/${encodeURIComponent(detail.value.id)}?${request}`);
});

/* What a person ticks is sent with the digest of what they saw. */
document.addEventListener("change", ({ target }) => {
  const form = target.closest("#agree");
  if (!form) return;
  const body = JSON.parse(form.dataset.body);
  for (const one of Object.values(body.agreed)) one.answers = [];
  for (const box of form.querySelectorAll("[data-answer]:checked")) body.agreed[box.dataset.skill].answers.push(box.dataset.answer);
  form.dataset.body = JSON.stringify(body);
});

/* An event may have come before this page listened. */
const timer = setInterval(() => {
  const job = document.getElementById("job");
  if (job?.dataset.state === "running") renew(new Set(["job"]));
  else clearInterval(timer);
}, POLL_MS);
