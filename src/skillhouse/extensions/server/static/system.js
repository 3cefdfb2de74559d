// The page of the service: a token or a code that was made is shown once.

import { renew } from "./app.js";

const form = document.getElementById("new-token");
const made = document.getElementById("made-token");

form?.addEventListener("answered", ({ detail }) => {
  made.hidden = !detail.ok;
  made.querySelector("code").textContent = detail.ok ? detail.value.token : "";
  if (!detail.ok) return;
  form.reset();
  renew(new Set(["keys-list"]));
});

const codeForm = document.getElementById("new-code");
const madeCode = document.getElementById("made-code");

codeForm?.addEventListener("answered", ({ detail }) => {
  madeCode.hidden = !detail.ok;
  madeCode.querySelector("code").textContent = detail.ok ? detail.value.code : "";
  if (!detail.ok) return;
  const drawn = new DOMParser().parseFromString(detail.value.picture, "image/svg+xml").documentElement;
  drawn.id = "code-picture";
  drawn.setAttribute("role", "img");
  const before = document.getElementById("code-picture");
  drawn.setAttribute("aria-label", before.dataset.label ?? before.getAttribute("aria-label"));
  before.replaceWith(document.importNode(drawn, true));
  codeForm.querySelector("[data-bearer]").value = "";
});
