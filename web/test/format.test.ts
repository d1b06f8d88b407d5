import assert from "node:assert/strict";
import test from "node:test";
import { duration, number, plural, share } from "../src/format.ts";
import { joined } from "../src/curves.ts";

test("durations are told in the two largest units", () => {
  assert.deepEqual([0, 59, 60, 61, 3600, 3661, 90_000, -1].map(duration), ["0s", "59s", "1m", "1m 1s", "1h", "1h 1m", "1d 1h", "–"]);
});

test("numbers keep four digits", () => {
  assert.deepEqual([0, 0.00001234, 0.12345, 1234.5, 12_345_678].map(number), ["0", "1.23e-5", "0.1235", "1,235", "1.23e+7"]);
});

test("a training without a known end has no share", () => {
  assert.equal(share(undefined), null);
  assert.equal(share({ step: 5, steps: 0 }), null);
  assert.equal(share({ step: 5, steps: 10 }), 0.5);
  assert.equal(share({ step: 15, steps: 10 }), 1);
});

test("words of one and of many", () => assert.deepEqual([plural(1, "job"), plural(2000, "job")], ["1 job", "2,000 jobs"]));

test("runs lie over one axis of steps", () => {
  const curves = [
    { name: "a", columns: { step: [1, 3], loss: [0.5, 0.3] } },
    { name: "b", columns: { step: [2, 3], loss: [0.4, null] } },
  ];
  assert.deepEqual(joined(curves, "loss"), [[1, 2, 3], [0.5, null, 0.3], [null, 0.4, null]]);
});
