// Raw rate beside delivered rate, the saving as a number, and the last minute as a picture.

const SECONDS_SHOWN = 60;
const SECONDS_MIN = 10; // a chart that has just begun is no sliver at its edge
const SAVING_OVER = 10; // seconds
const WIDTH = 600;
const HEIGHT = 120;

const element = (id) => document.getElementById(id);
const whole = (number) => Math.round(number).toLocaleString("en");

export class Figures {
  constructor() {
    this.reset();
  }

  reset() {
    this.first = null; // the first count of messages that came in
    this.before = null; // { messages, updates, at } of the last second
    this.updates = 0;
    this.seconds = []; // { raw, delivered } a second
    for (const id of ["raw", "delivered", "saved"]) element(id).textContent = "–";
    for (const id of ["raw-total", "delivered-total"]) element(id).textContent = "0";
    element("saved-meter").value = 0;
    this.draw();
  }

  // Updates that came by the stream; a snapshot's rows are none.
  deliver(count) {
    this.updates += count;
  }

  // The topic's count of messages at a moment (milliseconds).
  sample(messages, at) {
    if (this.before === null || messages < this.before.messages) {
      this.first = messages;
      this.updates = 0;
      this.before = { messages, updates: 0, at };
      return;
    }
    const seconds = (at - this.before.at) / 1000;
    if (seconds <= 0) return;
    this.seconds.push({
      raw: (messages - this.before.messages) / seconds,
      delivered: (this.updates - this.before.updates) / seconds,
    });
    this.seconds.splice(0, Math.max(0, this.seconds.length - SECONDS_SHOWN));
    this.before = { messages, updates: this.updates, at };
    this.show(messages - this.first);
    this.draw();
  }

  show(total) {
    const recent = this.seconds.slice(-SAVING_OVER);
    const sum = (name) => recent.reduce((all, second) => all + second[name], 0);
    const [raw, delivered] = [sum("raw"), sum("delivered")];
    const latest = this.seconds.slice(-3);
    const mean = (name) => latest.reduce((all, second) => all + second[name], 0) / latest.length;
    element("raw").textContent = whole(mean("raw"));
    element("delivered").textContent = whole(mean("delivered"));
    element("raw-total").textContent = whole(total);
    element("delivered-total").textContent = whole(this.updates);
    const saved = raw > 0 ? Math.max(0, 100 * (1 - delivered / raw)) : 0;
    element("saved").textContent = raw > 0 ? `${saved.toFixed(saved < 99.95 ? 1 : 0)} %` : "–";
    element("saved-meter").value = saved;
  }

  draw() {
    const most = Math.max(1, ...this.seconds.map((second) => Math.max(second.raw, second.delivered)));
    const across = Math.max(SECONDS_MIN, this.seconds.length);
    const left = across - this.seconds.length;
    const step = WIDTH / (across - 1);
    for (const name of ["raw", "delivered"]) {
      const points = this.seconds.map((second, index) => {
        const height = (second[name] / most) * (HEIGHT - 8);
        return `${((left + index) * step).toFixed(1)},${(HEIGHT - height).toFixed(1)}`;
      });
      if (points.length) points.push(`${WIDTH},${HEIGHT}`, `${(left * step).toFixed(1)},${HEIGHT}`);
      element(`chart-${name}`).setAttribute("points", points.join(" "));
    }
  }
}
