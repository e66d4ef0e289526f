// A task's output while it is written: read from where we are, search it, follow its end.
// Lines are text nodes: whatever a command prints stays text.

const MAX_LINES = 20000; // of a stream; older ones make room
const ESCAPES = /\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07/g;
const POLL_MS = 10000; // a hint may get lost

export function startOutput() {
  const panel = document.querySelector("[data-output]");
  if (panel) new Output(panel);
}

class Output {
  constructor(panel) {
    this.panel = panel;
    this.lines = panel.querySelector("[data-lines]");
    this.attempt = Number(panel.dataset.attempt);
    this.isOver = false;
    this.stream = "stdout";
    this.reset();
    this.listen();
    this.read();
    setInterval(() => this.read(), POLL_MS);
  }

  find(name) { return this.panel.querySelector(`[data-${name}]`); }

  listen() {
    document.addEventListener("console:output", ({ detail }) => {
      if (detail.stream === this.stream && detail.attempt >= this.attempt) this.follow(detail.attempt);
    });
    document.addEventListener("console:data", ({ detail }) => {
      if (detail.name !== "task") return;
      this.isOver = detail.value.is_over;
      this.follow(detail.value.attempt);
    });
    for (const tab of this.panel.querySelectorAll("[data-stream-name]")) {
      tab.addEventListener("click", () => this.choose(tab));
    }
    this.find("search").addEventListener("input", () => this.search());
    this.find("search").addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.step(event.shiftKey ? -1 : 1);
    });
    this.find("next").addEventListener("click", () => this.step(1));
    this.find("previous").addEventListener("click", () => this.step(-1));
    this.find("follow").addEventListener("change", () => this.toEnd());
    this.lines.addEventListener("scroll", () => this.scrolled());
  }

  reset() {
    this.offset = 0;
    this.isComplete = false;
    this.decoder = new TextDecoder();
    this.lines.replaceChildren();
    this.at = -1;
    this.generation = (this.generation ?? 0) + 1;
    this.find("hint").hidden = false;
    this.find("size").textContent = "";
  }

  choose(tab) {
    this.stream = tab.dataset.streamName;
    for (const other of this.panel.querySelectorAll("[data-stream-name]")) {
      other.setAttribute("aria-pressed", String(other === tab));
    }
    this.reset();
    this.read();
  }

  /** A newer attempt begins its output anew. */
  follow(attempt) {
    if (attempt > this.attempt) {
      this.attempt = attempt;
      this.reset();
    }
    this.read();
  }

  async read() {
    if (this.isReading) {
      this.isAskedAgain = true;
      return;
    }
    this.isReading = true;
    try {
      do {
        this.isAskedAgain = false;
        while (await this.readPart()) { /* until there is no more for now */ }
      } while (this.isAskedAgain);
    } finally {
      this.isReading = false;
    }
  }

  /** Whether there was something. */
  async readPart() {
    if (this.attempt < 1 || this.isComplete) return false;
    const { generation } = this;
    const query = new URLSearchParams({ stream: this.stream, offset: this.offset, attempt: this.attempt });
    const answer = await fetch(`${this.panel.dataset.output}?${query}`, { headers: { Accept: "text/plain" } });
    if (!answer.ok) return false;
    const bytes = await answer.arrayBuffer();
    if (generation !== this.generation) return true;
    this.isComplete = answer.headers.get("X-Log-Complete") === "true";
    this.offset = Number(answer.headers.get("X-Next-Offset"));
    if (bytes.byteLength) this.append(this.decoder.decode(bytes, { stream: true }));
    this.find("size").textContent = this.offset ? `${this.offset.toLocaleString()} bytes` : "";
    const hint = this.find("hint");
    hint.hidden = this.lines.childElementCount > 0;
    hint.textContent = this.isComplete ? `Nothing was written to ${this.stream}.` : "Nothing yet.";
    return bytes.byteLength > 0;
  }

  append(text) {
    const pieces = text.replace(ESCAPES, "").split("\n");
    const open = this.lines.lastElementChild;
    const first = pieces.shift();
    if (open && open.dataset.open) {
      open.textContent += first;
    } else {
      pieces.unshift(first);
    }
    if (open) delete open.dataset.open;
    const added = pieces.map((piece) => {
      const line = document.createElement("div");
      line.textContent = piece;
      return line;
    });
    // The last piece has no line end yet: what comes next belongs to it.
    if (added.length) added.at(-1).dataset.open = "yes";
    else if (open) open.dataset.open = "yes";
    this.lines.append(...added);
    while (this.lines.childElementCount > MAX_LINES) this.lines.firstElementChild.remove();
    if (this.find("search").value) this.search();
    this.toEnd();
  }

  toEnd() {
    if (this.find("follow").checked) this.lines.scrollTop = this.lines.scrollHeight;
  }

  /** Scrolling up is reading: it ends following; the end takes it up again. */
  scrolled() {
    const left = this.lines.scrollHeight - this.lines.scrollTop - this.lines.clientHeight;
    this.find("follow").checked = left < 24;
  }

  search() {
    const wanted = this.find("search").value.toLowerCase();
    let count = 0;
    for (const line of this.lines.children) {
      const hit = wanted !== "" && line.textContent.toLowerCase().includes(wanted);
      line.classList.toggle("hit", hit);
      line.classList.remove("at");
      if (hit) count += 1;
    }
    this.at = -1;
    this.find("matches").textContent = wanted ? `${count} lines` : "";
  }

  step(by) {
    const hits = this.lines.querySelectorAll(".hit");
    if (!hits.length) return;
    hits[this.at]?.classList.remove("at");
    this.at = (this.at + by + hits.length) % hits.length;
    hits[this.at].classList.add("at");
    this.find("follow").checked = false;
    hits[this.at].scrollIntoView({ block: "center" });
    this.find("matches").textContent = `${this.at + 1} of ${hits.length} lines`;
  }
}
