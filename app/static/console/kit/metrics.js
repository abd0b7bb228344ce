/**
 * The gateway's metrics as numbers: sums, rates, and quantiles between two looks.
 *
 * @module
 */

/** @typedef {{ labels: Record<string, string>, value: number }} Sample */

const LINE = /^([a-z_:]+)(?:\{(.*)\})? (\S+)$/i;
const LABEL = /([a-z_]+)="((?:[^"\\]|\\.)*)"/gi;
const OWN = "tidegate.";
/** What every worker counts of the messages that all of them read; docs/metrics.md has these as `shared`. */
const SHARED = new Set(["messages_in_total", "removals_in_total", "bytes_in_total", "keys", "journal_messages", "journal_bytes"].map((name) => `tidegate_topic_${name}`));

/** What `/metrics` said at one moment. */
export class Metrics {
  /** @param {string} text In Prometheus's format. */
  constructor(text) {
    this.at = performance.now();
    for (const line of text.split("\n")) {
      const found = line.startsWith("#") ? null : LINE.exec(line);
      if (!found) continue;
      const labels = Object.fromEntries([...(found[2] ?? "").matchAll(LABEL)].map(([, name, value]) => [name, value]));
      const held = this.#samples.get(found[1]);
      const sample = { labels, value: Number(found[3]) };
      const name = `${found[1]} ${labels.topic}`;
      const ofTopic = this.#ofTopic.get(name);
      if (ofTopic && SHARED.has(found[1])) {
        ofTopic.value = Math.max(ofTopic.value, sample.value);
        continue;
      }
      if (held) held.push(sample);
      else this.#samples.set(found[1], [sample]);
      // By itself: a table of 10,000 topics would look through all of them for each of its cells.
      if (ofTopic) ofTopic.value += sample.value;
      else if (labels.topic !== undefined) this.#ofTopic.set(name, SHARED.has(found[1]) ? sample : { ...sample });
    }
  }

  /** @type {Map<string, Sample[]>} */
  #samples = new Map();
  /** @type {Map<string, Sample>} By metric and topic, over workers and reasons; a shared one is that of `#samples`. */
  #ofTopic = new Map();

  /**
   * @param {string} name
   * @returns {Sample[]}
   */
  of(name) {
    return this.#samples.get(name) ?? [];
  }

  /**
   * Return the sum of a metric over all that has these labels.
   *
   * The gateway's own topics are left out: what it tells of itself is no traffic of its users.
   *
   * @param {string} name
   * @param {Record<string, string>} [labels]
   */
  sum(name, labels = {}) {
    const wanted = Object.entries(labels);
    if (wanted.length === 1 && labels.topic !== undefined) return this.#ofTopic.get(`${name} ${labels.topic}`)?.value ?? 0;
    return this.of(name).reduce((sum, sample) => {
      const isOwn = sample.labels.topic?.startsWith(OWN);
      return !isOwn && wanted.every(([label, value]) => sample.labels[label] === value) ? sum + sample.value : sum;
    }, 0);
  }

  /**
   * Return what a counter grew in each second since an earlier look; 0 where it began again.
   *
   * @param {Metrics | null} before
   * @param {string} name
   * @param {Record<string, string>} [labels]
   */
  rate(before, name, labels) {
    if (!before) return 0;
    const grown = this.sum(name, labels) - before.sum(name, labels);
    return Math.max(0, grown) / ((this.at - before.at) / 1_000);
  }

  /**
   * Return a quantile of a histogram since an earlier look, in its unit; null if nothing was observed.
   *
   * It is the upper bound of the bucket: never better than what was measured.
   *
   * @param {Metrics | null} before
   * @param {string} name
   * @param {number} quantile
   */
  quantile(before, name, quantile) {
    const bounds = [...new Set(this.of(`${name}_bucket`).map(({ labels }) => labels.le))];
    const counts = bounds.map((le) => this.sum(`${name}_bucket`, { le }) - (before?.sum(`${name}_bucket`, { le }) ?? 0));
    const all = counts[counts.length - 1] ?? 0;
    if (all <= 0) return null;
    const at = counts.findIndex((count) => count >= quantile * all);
    return bounds[at] === "+Inf" ? Number(bounds[at - 1]) : Number(bounds[at]);
  }

  /** The names of the topics but the gateway's own. */
  get topics() {
    return this.of("tidegate_topic_messages_in_total").map(({ labels }) => labels.topic).filter((topic) => !topic.startsWith(OWN));
  }

  /** The workers that share this address; one without a name is the gateway alone. */
  get workers() {
    return this.of("tidegate_ready").map(({ labels }) => labels.worker ?? "");
  }
}
