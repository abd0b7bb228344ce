// A gateway in this process: it answers `fetch`, and a test writes its streams.

const JSON_TYPE = { "Content-Type": "application/json" };

export class FakeGateway {
  constructor() {
    this.requests = []; // [method, path, body]
    this.headers = []; // of each request
    this.streams = [];
    this.sessions = 0;
    this.subs = 0;
    this.answers = []; // [pattern, answer function]: the first that fits is used once
    this.waiting = [];
    this.fetch = (url, init) => this.answer(new URL(url), init);
  }

  // The next request that fits is answered by this.
  once(method, pattern, answer) {
    this.answers.push({ method, pattern, answer });
  }

  async answer(url, init) {
    const path = url.pathname + url.search;
    const body = init.body === undefined ? undefined : JSON.parse(String(init.body).split("\n")[0]);
    this.requests.push([init.method, path, body]);
    this.headers.push(init.headers);
    for (const wake of this.waiting.splice(0)) wake();
    const at = this.answers.findIndex(({ method, pattern }) => method === init.method && pattern.test(path));
    if (at >= 0) return this.answers.splice(at, 1)[0].answer(init);
    if (path === "/v1/sessions") return json({ session: `S${(this.sessions += 1)}` }, 201);
    if (path.endsWith("/events")) return this.stream(init);
    if (init.method === "POST" && path.endsWith("/subscriptions")) return json(this.granted(body), 201);
    if (init.method === "PATCH") return json({ options: body.options ?? `conflation=${body.conflation}` });
    if (path.includes("/messages")) return json({ topic: "px", messages: 1 });
    return init.method === "DELETE" ? new Response(null, { status: 204 }) : json({});
  }

  granted(body) {
    return { sub: `s${(this.subs += 1)}`, topic: body.topic, options: body.options || "conflation=none" };
  }

  stream(init) {
    const stream = new FakeStream(init);
    this.streams.push(stream);
    return new Response(stream.body, { headers: { "Content-Type": "text/event-stream" } });
  }

  asked(method, pattern) {
    return this.requests.filter(([verb, path]) => verb === method && pattern.test(path));
  }

  // Resolves once so many requests have come that fit.
  async until(method, pattern, count = 1) {
    while (this.asked(method, pattern).length < count) {
      await new Promise((resolve) => this.waiting.push(resolve));
    }
    // The client has got the answer by then.
    await settled();
    return this.asked(method, pattern);
  }
}

class FakeStream {
  constructor({ headers, signal }) {
    this.lastId = headers.get("Last-Event-ID");
    this.body = new ReadableStream({
      start: (controller) => {
        this.controller = controller;
        signal.addEventListener("abort", () => this.end(new Error("aborted")));
      },
    });
  }

  async send(name, fields, id) {
    const lines = [name === "message" ? "" : `event: ${name}`, id ? `id: ${id}` : "", `data: ${JSON.stringify(fields)}`];
    await this.write(`${lines.filter(Boolean).join("\n")}\n\n`);
  }

  hello(subscriptions = [], heartbeat_ms = 15_000) {
    return this.send("hello", { session: "S", epoch: null, heartbeat_ms, subscriptions });
  }

  rows(sub, topic, values, id, op = "publish") {
    const rows = values.map(([key, value]) => ({ topic, op, key: [key], bookmark: "e-1", value }));
    return this.send("message", { sub, topic, rows }, id);
  }

  async snapshot(sub, topic, values, id) {
    await this.send("group_begin", { sub, topic, rows: values.length });
    await this.rows(sub, topic, values, "", "snapshot");
    await this.send("group_end", { sub, topic, rows: values.length }, id);
  }

  async write(text) {
    this.controller.enqueue(new TextEncoder().encode(text));
    await settled();
  }

  end(error) {
    if (this.isOver) return;
    this.isOver = true;
    if (error) this.controller.error(error);
    else this.controller.close();
  }
}

export function json(document, status = 200, headers = {}) {
  return new Response(JSON.stringify(document), { status, headers: { ...JSON_TYPE, ...headers } });
}

export function problem(status, code, headers = {}) {
  return new Response(JSON.stringify({ status, code, title: code, detail: "because" }), {
    status,
    headers: { "Content-Type": "application/problem+json", ...headers },
  });
}

// Everything that was ready to run has run.
export async function settled() {
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}
