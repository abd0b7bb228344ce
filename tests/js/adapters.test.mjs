import assert from "node:assert/strict";
import { test } from "node:test";

import { intoGrid, rowId } from "../../clients/js/adapters/ag-grid.js";
import { intoPerspective } from "../../clients/js/adapters/perspective.js";
import { subscriptionHook } from "../../clients/js/adapters/react.js";
import { intoTabulator } from "../../clients/js/adapters/tabulator.js";
import { intoPlot } from "../../clients/js/adapters/uplot.js";
import { Subscription } from "../../clients/js/client.js";
import { settled } from "./fake_gateway.mjs";

const BIG = 9007199254740993n;

// A subscription without a gateway, which is sent rows by its test.
class Fed {
  constructor(wish = {}) {
    this.closed = 0;
    const line = { add: () => {}, remove: async () => (this.closed += 1), change: async () => {} };
    this.subscription = new Subscription(line, "px", wish);
  }

  async send(...rows) {
    this.subscription.take("message", { topic: "px", rows: rows.map(([key, value, op = "publish"]) => ({ topic: "px", op, key: [key], value })) }, "");
    await settled();
  }
}

async function story(begin) {
  const fed = new Fed();
  await fed.send(["a", { id: "a", n: 1 }], ["big", { id: BIG, n: 1 }]);
  const stop = await begin(fed.subscription);
  await settled();
  await fed.send(["a", { id: "a", n: 2 }], ["b", { id: "b", n: 1 }]);
  await fed.send(["big", null, "oof"]);
  stop();
  await fed.send(["late", { id: "late", n: 1 }]);
}

test("a Perspective table clears the columns that a record no longer has", async () => {
  const held = new Map();
  const fed = new Fed();
  await fed.send(["a", { id: "a", n: 1, note: "old" }]);
  const stop = intoPerspective(fed.subscription, {
    get_index: async () => "id",
    update: async (rows) => rows.forEach((row) => held.set(row.id, { ...held.get(row.id), ...row })),
    remove: async () => {},
  });
  await settled();
  await fed.send(["a", { id: "a", n: 2 }]);
  assert.deepEqual(held.get("a"), { id: "a", n: 2, note: null });
  stop();
});

test("a Perspective table follows, by its index", async () => {
  const held = new Map();
  await story((subscription) =>
    intoPerspective(subscription, {
      get_index: async () => "id",
      update: async (rows) => rows.forEach((row) => held.set(row.id, row.n)),
      remove: async (ids) => ids.forEach((id) => assert.ok(held.delete(id), id)),
    }),
  );
  assert.deepEqual([...held], [["a", 2], ["b", 1]]);
});

test("a slow Perspective table gets several flushes at once", async () => {
  const fed = new Fed();
  const updates = [];
  let done;
  const table = {
    get_index: async () => "id",
    update: (rows) => new Promise((resolve) => updates.push(rows.map(({ n }) => n)) && (done = resolve)),
    remove: async () => {},
  };
  intoPerspective(fed.subscription, table);
  for (const n of [1, 2, 3]) await fed.send(["a", { id: "a", n }]);
  done();
  await settled();
  assert.deepEqual(updates, [[1], [3]]);
});

test("an AG Grid follows by transactions", async () => {
  const held = new Map();
  const put = (row) => held.set(rowId({ data: row }), row.value.n);
  await story((subscription) =>
    intoGrid(subscription, {
      setGridOption: (name, rows) => rows.forEach(put),
      applyTransactionAsync: ({ add, update, remove }) => {
        for (const row of add) assert.ok(!held.has(row.id));
        for (const row of update) assert.ok(held.has(row.id));
        [...add, ...update].forEach(put);
        for (const row of remove) assert.ok(held.delete(row.id));
      },
    }),
  );
  assert.deepEqual([...held], [['["a"]', 2], ['["b"]', 1]]);
});

test("a Tabulator follows by its index, with rows of its own", async () => {
  const held = new Map();
  await story((subscription) =>
    intoTabulator(subscription, {
      setData: async () => held.clear(),
      updateOrAddData: async (rows) => {
        for (const row of rows) held.set(row.id, row.value.n);
        rows[0].value = "written over by the table";
      },
      deleteRow: async (ids) => ids.forEach((id) => assert.ok(held.delete(id))),
    }).valueOf(),
  );
  assert.deepEqual([...held], [['["a"]', 2], ['["b"]', 1]]);
});

test("a plot gets the numbers of one record, and gaps where there is none", async () => {
  const drawn = [];
  let time = 0;
  await story((subscription) =>
    intoPlot(subscription, { setData: (data) => drawn.push(structuredClone(data)) }, { key: ["a"], fields: ["n", "none"], now: () => (time += 1) }),
  );
  assert.deepEqual(drawn, [
    [[1], [1], [null]],
    [[1, 2], [1, 2], [null, null]],
  ]);
});

test("a plot keeps so many points", async () => {
  const fed = new Fed();
  let last;
  intoPlot(fed.subscription, { setData: (data) => (last = data) }, { key: ["a"], fields: ["n"], points: 3 });
  for (let n = 0; n < 5; n += 1) await fed.send(["a", { n }]);
  assert.deepEqual(last[1], [2, 3, 4]);
});

test("the hook subscribes once for a wish, shows the rows and ends with its component", async () => {
  const opened = [];
  const gateway = {
    subscribe: (topic, wish) => {
      opened.push(new Fed(wish));
      return opened.at(-1).subscription;
    },
  };
  const react = new FakeReact();
  const useSubscription = subscriptionHook(react);
  const render = (wish) => react.render(() => useSubscription(gateway, "px", wish));
  assert.deepEqual(render({ orderBy: "/n DESC" }).rows, []);
  await opened[0].send(["a", { n: 1 }], ["b", { n: 2 }]);
  assert.equal(react.renderings, 1);
  assert.deepEqual(render({ orderBy: "/n DESC" }).rows.map(({ key }) => key[0]), ["b", "a"]);
  assert.equal(render({ orderBy: "/n DESC" }), render({ orderBy: "/n DESC" }));
  assert.equal(opened.length, 1);
  render({ orderBy: "/n" });
  assert.equal(opened.length, 2);
  assert.equal(opened[0].closed, 1);
  const stated = () => {
    const { state, reason, code } = render({ orderBy: "/n" });
    return [state, reason, code];
  };
  assert.deepEqual(stated(), ["connecting", "", ""]);
  opened[1].subscription.entered("live", "");
  assert.deepEqual(stated(), ["live", "", ""]);
  opened[1].subscription.entered("lost", "A limit is reached", "limit-reached");
  assert.deepEqual(stated(), ["lost", "A limit is reached", "limit-reached"]);
  opened[1].subscription.ended("REMOVED");
  assert.deepEqual(stated(), ["closed", "REMOVED", ""]);
  react.unmount();
  assert.equal(opened[1].subscription.end, "REMOVED");
});

// What React does with the two hooks, and no more.
class FakeReact {
  renderings = 0;
  #of = null;
  #made = null;
  #store = null;
  #end = () => {};

  useMemo = (make, of) => {
    if (this.#of === null || of.some((each, at) => !Object.is(each, this.#of[at]))) this.#made = make();
    this.#of = of;
    return this.#made;
  };

  useSyncExternalStore = (subscribe, shown) => {
    if (this.#store !== subscribe) {
      this.#end();
      this.#store = subscribe;
      this.#end = subscribe(() => (this.renderings += 1));
    }
    return shown();
  };

  render(component) {
    return component();
  }

  unmount() {
    this.#end();
  }
}
