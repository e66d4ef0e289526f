// Moments as people say them. The server writes them as machines read them, so that a part of the page is
// sent again only when its facts have changed.

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const [unit, size] = UNITS.find(([, size]) => whole >= size) ?? UNITS.at(-1);
  const rest = UNITS[UNITS.findIndex(([name]) => name === unit) + 1];
  const first = `${Math.floor(whole / size)} ${unit}`;
  if (!rest || whole >= size * 10) return first;
  const second = Math.floor((whole % size) / rest[1]);
  return second ? `${first} ${second} ${rest[0]}` : first;
}

function words(element, now) {
  const moment = new Date(element.dateTime);
  const seconds = (now - moment) / 1000;
  switch (element.dataset.time) {
    case "ago": return seconds < -1 ? `in ${span(-seconds)}` : `${span(seconds)} ago`;
    case "elapsed": return span(seconds);
    default: return Math.abs(seconds) < 86400 ? clock.format(moment) : `${day.format(moment)} ${clock.format(moment)}`;
  }
}

/** Put all times below `root` into words. */
export function tellTimes(root) {
  const now = Date.now();
  for (const element of root.querySelectorAll("time[data-time]")) {
    const text = words(element, now);
    if (element.textContent !== text) element.textContent = text;
  }
}

export function startTimes() {
  tellTimes(document);
  setInterval(() => tellTimes(document), 1000);
}
