// Buttons follow the state of the thing: a live region says which actions it offers now.
// Greyed out instead of removed: nothing may move under a pointer that is about to press.
export function startOffers() {
  document.addEventListener("console:placed", follow);
  follow();
}

function follow() {
  const offers = document.querySelector("[data-offers]")?.dataset.offers;
  if (offers === undefined) return;
  const open = new Set(offers.split(" "));
  for (const button of document.querySelectorAll("button[data-offer]")) {
    button.disabled = !open.has(button.dataset.offer);
  }
}
