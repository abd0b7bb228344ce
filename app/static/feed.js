// What comes from the gateway: the list of topics, a topic's figures, and its stream of batches.

const LIST_EVERY_MS = 4000;
const FIGURES_EVERY_MS = 1000;
const REOPEN_MS = [1500, 4000]; // somewhere between, so that many pages do not come back as one

const pathOf = (topic) => `/v1/topics/${encodeURIComponent(topic)}`;

async function fetchJson(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.json();
}

const PIPELINES = "tidegate.pipelines"; // the gateway's own: listed here once one has told of itself

// Calls `take` with every topic's definition, again and again; with null while nobody answers.
export function followTopics(take) {
  const look = async () => {
    try {
      const topics = [];
      for (let path = "/v1/topics?limit=1000"; path; ) {
        const page = await fetchJson(path);
        topics.push(...page.topics);
        path = page.next;
      }
      const pipelines = await fetchJson(pathOf(PIPELINES));
      if (pipelines.journal.messages > 0) topics.push(pipelines);
      take(topics);
    } catch {
      take(null);
    }
    setTimeout(look, LIST_EVERY_MS);
  };
  look();
}

// Calls `take` with a topic's live figures once a second; the answer ends it.
export function followFigures(topic, take) {
  let timer = 0;
  let ended = false;
  const look = async () => {
    try {
      const figures = await fetchJson(pathOf(topic));
      if (!ended) take(figures, performance.now());
    } catch {
      // The stream notices too, and says so.
    }
    if (!ended) timer = setTimeout(look, FIGURES_EVERY_MS);
  };
  look();
  return () => {
    ended = true;
    clearTimeout(timer);
  };
}

// Opens the stream of a topic. `on` has hello(document), rows(rows), replaced(), lost(reason) and
// ended(reason). The browser reopens a lost stream by itself; one that was refused is tried again
// here. The answer closes it for good.
export function followStream(topic, options, on) {
  let source = null;
  let timer = 0;
  const query = new URLSearchParams({ format: "batch" });
  if (options) query.set("options", options);

  const read = (name, take) =>
    source.addEventListener(name, (event) => take(JSON.parse(event.data)));

  const open = () => {
    source = new EventSource(`${pathOf(topic)}/subscribe?${query}`);
    read("hello", on.hello);
    read("message", (batch) => on.rows(batch.rows));
    read("resumed", (resumed) => resumed.mode === "snapshot" && on.replaced());
    read("unsubscribed", (told) => on.lost(told.reason === "REMOVED" ? "topic removed" : "unsubscribed"));
    read("goodbye", (told) => {
      if (told.reconnect) return;
      source.close();
      on.ended(told.reason);
    });
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) {
        on.lost("refused, trying again");
        const [least, most] = REOPEN_MS;
        timer = setTimeout(open, least + Math.random() * (most - least));
      } else {
        on.lost("connection lost");
      }
    };
  };
  open();
  return () => {
    clearTimeout(timer);
    source.close();
  };
}
