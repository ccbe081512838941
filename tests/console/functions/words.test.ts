/** Messages followed by other sentences. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sentence } from "../../../console/src/kit/words";

test("sentence ends with one full stop", () => {
  assert.equal(sentence("JWT expired"), "JWT expired.");
  assert.equal(sentence("The daemon responded with status 500."), "The daemon responded with status 500.");
  assert.equal(sentence("Really? "), "Really?");
  assert.equal(sentence(""), "");
});
