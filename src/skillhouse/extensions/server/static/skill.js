// A skill and its files: links that a person confirms, results of calls, parts that take long.

import { showProblem } from "./app.js";

/* A link of a skill shows where it leads before it is opened. */
const away = document.getElementById("away");

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("[data-away]");
  if (!link || !away) return;
  const target = new URL(link.dataset.away);
  away.querySelector("[data-host]").textContent = target.host;
  away.querySelector("[data-target]").textContent = target.href;
  away.querySelector("[data-open]").onclick = () => {
    away.close();
    open(target.href, "_blank", "noopener,noreferrer");
  };
  away.showModal();
});

/* Whatever a tool answers is text, and what hides in it is marked. */
export function showText(place, text) {
  place.replaceChildren(
    ...text.split(/((?![\n\t])[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}]+)/u).map((piece, at) => {
      if (at % 2 === 0) return document.createTextNode(piece);
      const mark = document.createElement("mark");
      mark.textContent = [...piece].map((one) => `\\u{${one.codePointAt(0).toString(16)}}`).join("");
      return mark;
    }),
  );
}

document.addEventListener("answered", ({ detail }) => {
  const result = document.getElementById("result");
  if (!detail.element.matches("form.call") || !result || !detail.ok) return;
  const { status, content, approval_id: approval } = detail.value;
  for (const one of result.querySelectorAll("[data-when]")) one.hidden = one.dataset.when !== status;
  if (approval) result.querySelector("[data-when=pending] a").href = `/approvals/${encodeURIComponent(approval)}`;
  const place = result.querySelector("[data-content]");
  showText(place, content);
  place.hidden = !content;
  result.hidden = false;
  result.scrollIntoView({ block: "nearest" });
});

/* A part with data-load is filled from another page, which takes longer to make. */
for (const part of document.querySelectorAll("[data-load]")) {
  try {
    const answer = await fetch(part.dataset.load);
    const found = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(part.id);
    if (answer.ok && found) part.replaceWith(found);
  } catch (error) {
    showProblem(part, { detail: error.message });
  }
}
