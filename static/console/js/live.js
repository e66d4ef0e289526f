// The page's one stream: parts of the page that changed, numbers for its charts, hints of more output.
// A page nobody looks at lets go of its connection: browsers give a site few of them.
import { morph, parse } from "./morph.js";
import { tellTimes } from "./times.js";

const WORDS = { live: "live", away: "reconnecting", still: "paused", ended: "ended: reload the page" };
const RETRY_MS = 5000;

let source = null;
let retry = 0;
// A row that moves between press and release swallows the click: while a button is down, news wait.
let isPressed = false;
const held = new Map();

export function startStream() {
  if (!document.body.dataset.stream) return;
  document.addEventListener("visibilitychange", follow);
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", follow);
  document.addEventListener("pointerdown", () => (isPressed = true), true);
  for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, release, true);
  window.addEventListener("blur", release);
  follow();
}

function follow() {
  if (document.hidden) {
    close();
    say("still");
  } else if (!source) {
    open();
  }
}

function open() {
  clearTimeout(retry);
  source = new EventSource(document.body.dataset.stream);
  source.addEventListener("open", () => say("live"));
  source.addEventListener("error", stumble);
  source.addEventListener("region", (event) => place(JSON.parse(event.data)));
  for (const name of ["data", "output"]) {
    source.addEventListener(name, (event) => tell(name, JSON.parse(event.data)));
  }
}

function close() {
  clearTimeout(retry);
  source?.close();
  source = null;
}

function stumble() {
  say("away");
  // A refusal ends the browser's own tries; the server may only be restarting.
  if (source?.readyState === EventSource.CLOSED) {
    close();
    retry = setTimeout(follow, RETRY_MS);
  }
}

function release() {
  // The click follows the release at once; what was held comes behind it.
  setTimeout(() => {
    isPressed = false;
    for (const [name, html] of held) place({ name, html });
    held.clear();
  });
}

function place({ name, html }) {
  if (isPressed) {
    held.set(name, html);
    return;
  }
  const region = document.querySelector(`[data-region="${CSS.escape(name)}"]`);
  if (!region) return;
  const content = parse(html);
  tellTimes(content);
  morph(region, content);
  tell("placed", name);
}

function tell(kind, detail) {
  document.dispatchEvent(new CustomEvent(`console:${kind}`, { detail }));
}

function say(state) {
  const place = document.getElementById("live");
  place.hidden = false;
  place.dataset.state = state;
  place.textContent = WORDS[state];
}
