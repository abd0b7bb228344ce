import assert from "node:assert/strict";
import { test } from "node:test";

import { equal, lineOf, parse, parseEvent, patched, stringify } from "../../clients/js/client/json.js";

test("integers beyond 2^53 are exact, and others are numbers", () => {
  assert.deepEqual(parse('{"a":9007199254740991,"b":9007199254740992,"c":-9007199254740993}'), {
    a: 9007199254740991,
    b: 9007199254740992n,
    c: -9007199254740993n,
  });
});

test("they are text or rounded by choice", () => {
  assert.deepEqual(parse("[9007199254740993]", "text"), ["9007199254740993"]);
  assert.deepEqual(parse("[9007199254740993]", "number"), [9007199254740992]);
});

test("decimals and exponents are numbers, however long", () => {
  assert.deepEqual(parse("[0.12345678901234567,12345678901234567890.5,1234567890123456789012e2]"), [
    0.12345678901234567,
    12345678901234567890.5,
    1234567890123456789012e2,
  ]);
});

test("a number beyond a double is refused, and costs an event its row alone", () => {
  for (const text of ["1e400", '{"a":[-1E+309]}', `${"9".repeat(250)}e60`]) assert.throws(() => parse(text), RangeError, text);
  assert.throws(() => parse("9".repeat(309), "number"), RangeError);
  assert.equal(parse("9".repeat(309)), BigInt("9".repeat(309)));
  assert.deepEqual(parse('["1e400",1e308,5e-324,0e999]'), ["1e400", 1e308, 5e-324, 0]);
  const { rows } = parseEvent('{"rows":[{"key":[1],"value":{"v":1e400}},{"key":[2],"value":"1e400"}]}');
  assert.deepEqual(rows, [{ key: [1], value: undefined, unreadable: "a number beyond a double" }, { key: [2], value: "1e400" }]);
  assert.equal(parseEvent('{"op":"publish","value":1e400}').unreadable, "a number beyond a double");
  assert.equal(parseEvent('{"op":"publish","value":1e308}').unreadable, undefined);
  assert.deepEqual(parseEvent('{"op":"oof","value":1e400}'), { op: "oof", value: undefined });
  const [far, near] = parseEvent('{"rows":[{"key":[1e400],"value":1},{"key":[-1e400],"value":1}]}').rows;
  assert.deepEqual([far.key, near.key, far.unreadable], ["Infinity", "-Infinity", "a number beyond a double"]);
  assert.deepEqual(parseEvent('{"rows":7,"value":1e300}'), { rows: 7, value: 1e300 });
});

test("the exact reader reads every kind of value as JSON.parse does", () => {
  const rest = String.raw`"t":true,"f":false,"n":null,"s":"a\"\\\u00e9 9007199254740993, :12345678901234567","e":"","o":{},"l":[],"x":-0.5e-3,"deep":[[{"k":[1,2]}]]`;
  const value = parse(` { "big" : 12345678901234567890 , ${rest} } `);
  assert.equal(value.big, 12345678901234567890n);
  delete value.big;
  assert.deepEqual(value, JSON.parse(`{${rest}}`));
});

test("as many levels are read as a message may have", () => {
  const text = `${"[".repeat(64)}12345678901234567890${"]".repeat(64)}`;
  assert.equal(stringify(parse(text)), text);
});

test("a member named __proto__ is a member", () => {
  const value = parse('{"__proto__":{"x":12345678901234567890}}');
  assert.deepEqual(Object.keys(value), ["__proto__"]);
  assert.equal({}.x, undefined);
  assert.deepEqual(Object.keys(patched(value, JSON.parse('{"__proto__":{"y":1}}'))), ["__proto__"]);
});

test("what is no JSON is refused", () => {
  for (const text of ["", "{", "[12345678901234567890", '{"a":12345678901234567890,}', "NaN"]) {
    assert.throws(() => parse(text), SyntaxError, text);
  }
});

test("a value is written as it was read", () => {
  const text = '{"id":12345678901234567890,"l":[1,null,"x"],"o":{"n":-12345678901234567890}}';
  assert.equal(stringify(parse(text)), text);
  assert.equal(stringify({ at: new Date(0), gone: undefined, big: 1n }), '{"at":"1970-01-01T00:00:00.000Z","big":1}');
});

test("a message with a number that is not finite is refused, with its path", () => {
  assert.equal(lineOf({ a: null, b: [1, "null"] }), '{"a":null,"b":[1,"null"]}');
  assert.throws(() => lineOf({ a: null, rows: [{ px: NaN }] }), /^RangeError: \/rows\/0\/px is NaN/);
  assert.throws(() => lineOf(-Infinity), /^RangeError: the message is -Infinity/);
});

test("a value that contains itself is an error and no endless loop", () => {
  const value = { big: 1n };
  value.self = value;
  assert.throws(() => stringify(value), TypeError);
});

test("values are compared whole", () => {
  assert.ok(equal({ a: [1, { b: 2n }], c: null }, { c: null, a: [1, { b: 2n }] }));
  for (const [one, other] of [
    [{ a: 1 }, { b: 1 }],
    [{ a: undefined }, { b: 1 }],
    [[1], { 0: 1 }],
    [[1, 2], [1]],
    [1, "1"],
    [null, {}],
  ]) {
    assert.equal(equal(one, other), false);
  }
});
