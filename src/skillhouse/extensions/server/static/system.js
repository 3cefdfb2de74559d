// The page of the service: a token that was made is shown once.

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
