/**
 * The widget of the concepts page: a stream, conflated at the reader's own interval. Nothing is sent
 * anywhere; `Conflation` follows the rules interval-1 to interval-5 of the semantics.
 *
 * @module
 */

const TICK_MS_MAX = 50;

/** The newest value of each key that waits, and when it goes. */
export class Conflation {
  /** @param {number} interval In ms; 0 sends every message. @param {"batch" | "key"} pace */
  constructor(interval, pace) {
    this.interval = interval;
    this.pace = pace;
    /** @type {Map<string, {value: unknown, due: number}>} */
    this.held = new Map();
    this.due = Infinity;
  }

  /** Take a message; one of the same key that waits is replaced. */
  publish(now, key, value) {
    const earlier = this.held.get(key);
    // A changed key goes to the end: a flush is in the order of publication.
    this.held.delete(key);
    this.held.set(key, { value, due: earlier?.due ?? this.#deadline(now) });
    this.due = Math.min(this.due, this.pace === "key" ? this.held.get(key).due : now + this.interval);
  }

  /** Return what goes at this moment, as pairs of key and value. */
  advance(now) {
    if (now < this.due) return [];
    const rows = [];
    for (const [key, { value, due }] of this.held) {
      if (this.pace === "batch" || due <= now) rows.push([key, value]);
    }
    for (const [key] of rows) this.held.delete(key);
    this.due = Math.min(Infinity, ...[...this.held.values()].map((it) => it.due));
    return rows;
  }

  #deadline(now) {
    if (this.pace === "batch" || this.interval === 0) return now + this.interval;
    const tick = Math.max(1, Math.min(this.interval / 20, TICK_MS_MAX));
    return Math.ceil((now + this.interval) / tick) * tick;
  }
}

const SYMBOLS = ["AAPL", "AIG", "GE", "IBM", "INTC", "MSFT", "ORCL", "XOM"];
const FLASH_MS = 180;

class Side {
  /** @param {Element} place @param {string} title */
  constructor(place, title) {
    const table = place.appendChild(document.createElement("table"));
    this.caption = table.createCaption();
    this.title = title;
    this.cells = new Map(SYMBOLS.map((symbol) => {
      const row = table.insertRow();
      row.insertCell().textContent = symbol;
      return [symbol, row.insertCell()];
    }));
    this.until = new Map();
    this.sent = 0;
  }

  show(now, rows) {
    for (const [symbol, price] of rows) {
      this.cells.get(symbol).textContent = price;
      this.cells.get(symbol).className = "now";
      this.until.set(symbol, now + FLASH_MS);
      this.sent += 1;
    }
    for (const [symbol, until] of this.until) {
      if (until <= now) {
        this.cells.get(symbol).className = "";
        this.until.delete(symbol);
      }
    }
    this.caption.textContent = `${this.title}: ${this.sent.toLocaleString("en")} sent`;
  }
}

/** Build the widget, and run it while it can be seen. */
function begin(place) {
  place.innerHTML = `<form>
      <label>Publish <input type="range" name="rate" min="0" max="100" value="60"><output name="rateOut"></output></label>
      <label>Interval <input type="range" name="step" min="0" max="7" value="4"><output name="stepOut"></output></label>
      <label>Pace <select name="pace"><option>batch</option><option>key</option></select></label>
      <button type="button" name="stop">Pause</button>
    </form><div class="sides"></div><p class="sum" aria-live="off"></p>`;
  const STEPS = [0, 100, 200, 500, 1000, 2000, 5000, 10000];
  const form = place.querySelector("form");
  const { rate, step, pace, stop, rateOut, stepOut } = form.elements;
  const sides = place.querySelector(".sides");
  const prices = new Map(SYMBOLS.map((symbol, number) => [symbol, 40 + 35 * number]));
  const every = new Side(sides, "conflation=none");
  const yours = new Side(sides, "yours");
  let conflation = new Conflation(1000, "batch");
  let running = !matchMedia("(prefers-reduced-motion: reduce)").matches;
  let last = performance.now();
  let owed = 0;

  const perSecond = () => Math.round(10 ** (Number(rate.value) / 33.3));
  const apply = () => {
    const interval = STEPS[Number(step.value)];
    const held = conflation.held;
    conflation = new Conflation(interval, pace.value);
    for (const [key, { value }] of held) conflation.publish(last, key, value);
    yours.title = interval ? `conflation=${interval}ms${pace.value === "key" ? ",pace=key" : ""}` : "conflation=none";
    rateOut.value = `${perSecond()} /s`;
    stepOut.value = interval ? (interval < 1000 ? `${interval} ms` : `${interval / 1000} s`) : "none";
    stop.textContent = running ? "Pause" : "Run";
  };
  const frame = () => {
    const now = performance.now();
    if (running && place.isConnected) {
      owed += Math.min(now - last, 200) * perSecond() / 1000;
      const rows = [];
      while (owed >= 1) {
        owed -= 1;
        const symbol = SYMBOLS[Math.floor(Math.random() * SYMBOLS.length)];
        const price = Math.max(1, prices.get(symbol) + Math.random() - 0.5);
        prices.set(symbol, price);
        rows.push([symbol, price.toFixed(2)]);
        conflation.publish(now, symbol, price.toFixed(2));
      }
      every.show(now, rows);
      yours.show(now, conflation.advance(now));
      const saved = every.sent ? 100 * (1 - yours.sent / every.sent) : 0;
      place.querySelector(".sum").textContent =
        `Of ${every.sent.toLocaleString("en")} messages ${yours.sent.toLocaleString("en")} were sent to you: ` +
        `${saved.toFixed(1)} % were conflated. Waiting now: ${conflation.held.size} of ${SYMBOLS.length} keys.`;
    }
    last = now;
    requestAnimationFrame(frame);
  };
  form.addEventListener("input", apply);
  stop.addEventListener("click", () => {
    running = !running;
    apply();
  });
  apply();
  frame();
}

if (typeof document !== "undefined") {
  const place = document.getElementById("conflation");
  if (place) begin(place);
}
