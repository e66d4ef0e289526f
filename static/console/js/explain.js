// Why something waits, inside its page. Asked once when the page opens and again when the reader wants to:
// judging a thousand runners is too much work to be done for every open page every second.
import { tellTimes } from "./times.js";

export function startExplanations() {
  for (const place of document.querySelectorAll("[data-explain]")) ask(place);
}

async function ask(place) {
  const answer = await fetch(place.dataset.explain);
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const found = page.getElementById("explanation");
  if (!found) return;
  tellTimes(found);
  const again = document.createElement("button");
  again.type = "button";
  again.textContent = "Ask again";
  again.addEventListener("click", () => ask(place));
  place.replaceChildren(...found.childNodes, again);
}
