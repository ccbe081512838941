/** CSV files for spreadsheets. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { withoutFormulas } from "../../../console/src/rows/csv";

test("formulas are escaped with an apostrophe", () => {
  const formulas = ["=1+1", "+cmd|x", "-2+3", "@SUM(A1)", " =1", "\uff1d1", "-", "-Infinity", "=1e5"];
  for (const formula of formulas) {
    assert.equal(withoutFormulas(`id,note\n1,${formula}\n`), `id,note\n1,'${formula}\n`);
    assert.equal(withoutFormulas(`"${formula}",2`), `"'${formula}",2`);
  }
  assert.equal(withoutFormulas('"=HYPERLINK(""http://x"",""y"")"\r\n"\t=1","\n=1"'), `"'=HYPERLINK(""http://x"",""y"")"\r\n"'\t=1","'\n=1"`);
  assert.equal(withoutFormulas("=column,b\n1,2"), "'=column,b\n1,2", "a column's name, too");
});

test("numbers and other texts are unchanged", () => {
  const csv = 'id,"a ""b"", c",d\n-1,+2.50,-1e-7\n.5,-.5,1.\n,"",x=1\n2026-11-28,a-b,"two\nlines, =1"\n';
  assert.equal(withoutFormulas(csv), csv);
  assert.equal(withoutFormulas(""), "");
});

test("malformed file is unchanged", () => {
  assert.equal(withoutFormulas('a,"b'), 'a,"b');
  assert.equal(withoutFormulas('a,b"c,=d'), 'a,b"c,=d');
});
