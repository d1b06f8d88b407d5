import assert from "node:assert/strict";
import test from "node:test";
import { duration, mayBe, moment, number, plural, share, startLine, ticks } from "../src/format.ts";
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

test("times are ISO's, of the user's zone, with the day where it is another one", () => {
  const now = new Date(2026, 10, 25, 13, 5);
  assert.equal(moment(new Date(2026, 10, 25, 9, 7), now), "09:07");
  assert.equal(moment(new Date(2026, 10, 24, 9, 7), now), "2026-11-24 09:07");
  const [about, late] = [new Date(2026, 10, 26, 0, 37), new Date(2026, 10, 26, 1, 5)].map((one) => one.toISOString());
  assert.equal(mayBe("", about!, late!, now.getTime()), "about 2026-11-26 00:37, 9 of 10 by 01:05"); // the day once
  assert.equal(mayBe("", about!, about!, now.getTime()), "about 2026-11-26 00:37");
  assert.equal(mayBe("", new Date(2026, 10, 25, 14, 0).toISOString(), new Date(2026, 10, 26, 1, 0).toISOString(), now.getTime()), "about 14:00, 9 of 10 by 2026-11-26 01:00");
});

test("an axis of time says the day once, and where it changes", () => {
  const seconds = [[25, 23, 30], [26, 0, 0], [26, 0, 30]].map(([day, hour, minute]) => new Date(2026, 10, day, hour, minute).getTime() / 1000);
  assert.deepEqual(ticks(seconds, 1800), ["23:30\n2026-11-25", "00:00\n2026-11-26", "00:30"]);
  assert.deepEqual(ticks(seconds.slice(2), 10), ["00:30:00\n2026-11-26"]);
});

test("the line that starts a program leads to the cluster, and names an image there", () => {
  assert.equal(startLine(null), "gangline run -n 4 -- python train.py");
  assert.equal(startLine({ local: true, options: " --cluster other" }), "gangline run --cluster other -n 4 -- python train.py");
  assert.equal(startLine({ local: false, options: " --context CONTEXT" }), "gangline run --context CONTEXT --image IMAGE -n 4 -- python train.py");
});
