import assert from "node:assert/strict";
import { test } from "node:test";
import { contrast, readable, shades } from "../../../console/src/portal/color.ts";

const COLORS = ["#000000", "#ffffff", "#ffff00", "#0f766e", "#ff0000", "#3366ff", "#808080", "#00ff00"];

test("shades of every color are readable in both themes", () => {
  for (const color of COLORS) {
    assert.ok(contrast(readable(color, "#ffffff", 0), "#ffffff") >= 4.5, color);
    assert.ok(contrast(readable(color, "#222731", 255), "#222731") >= 4.5, color);
  }
});

test("readable color is unchanged", () => {
  assert.equal(readable("#0f766e", "#ffffff", 0), "#0f766e");
  assert.equal(shades("#0f766e")["--brand"], "#0f766e");
});

test("contrast is computed according to WCAG", () => {
  assert.equal(contrast("#000000", "#ffffff"), 21);
  assert.equal(contrast("#777777", "#777777"), 1);
});
