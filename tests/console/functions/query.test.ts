/** Parsing and formatting of REST request URLs. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { aggregatesOf, typeAt } from "../../../console/src/rest/operators";
import { parseTarget, pathOf, quoted, split, targetOf, unquoted } from "../../../console/src/rest/query";
import { calledBy, pathOfCall, pathOfTable, tableOf } from "../../../console/src/rest/request";

const ADDRESSES = [
  "book",
  "book?select=id,title&limit=20",
  "book?select=long:title::text,pages.sum(),facts-%3E%3Eheight",
  "book?select=title,by:author!inner(name,...country(code)),tag!book_tag!left(*)&by.country.code=eq.AT",
  "book?select=count()&author_id=not.in.(1,2)",
  "book?facts-%3Esize-%3E%3Eheight=gt.20&order=facts-%3Esize.desc.nullslast,author(name)",
  "book?%22odd.name%22=eq.1&%22a,b%22=like(any).%7Ba*,b*%7D",
  "book?or=(id.eq.1,and(pages.gt.2,title.is.null))&not.and=(id.eq.3)",
  "author?book.order=id.desc&book.limit=1",
  "rpc/longer?limit=2&than=10&title_like=N*",
  "book?columns=id,title&on_conflict=title",
  "caf%C3%A9%20menu?id=isdistinct.null",
  "a%2Fb?id=eq.1",
  "rpc%2Fa?id=eq.1",
  "rpc/a%2Fb?id=1",
];

for (const address of ADDRESSES) {
  test(`round trip of ${address}`, () => {
    const { path, query } = parseTarget(address);
    assert.equal(targetOf(path, query), address);
  });
}

test("slash in a table name is escaped", () => {
  assert.equal(calledBy(pathOfTable("rpc/a")), null);
  assert.equal(tableOf(parseTarget("rpc%2Fa?id=eq.1").path), "rpc/a");
  assert.equal(calledBy(parseTarget(pathOfCall("a/b")).path), "a/b");
});

test("unknown parameters are retained", () => {
  const { path, query } = parseTarget("book?select=id,author!left(name)&id=gt.1&author.name=eq.x&nonsense=1&offset=2");
  assert.equal(path, "book");
  assert.deepEqual(query.others, [["nonsense", "1"]]);
  assert.deepEqual(query.rows.filters.map(({ name, operator, value }) => [name, operator, value]), [["id", "gt", "1"]]);
  assert.equal(query.rows.offset, "2");
  const [author] = query.rows.embeds;
  assert.deepEqual([author?.name, author?.join, author?.rows.columns], ["author", "left", ["name"]]);
  assert.deepEqual(author?.rows.filters.map(({ value }) => value), ["x"]);
});

test("JSON path is separated from a quoted column name", () => {
  assert.deepEqual(pathOf("facts->size->>height"), { column: "facts", arrow: "->", steps: "size->>height" });
  assert.deepEqual(pathOf("facts->>height"), { column: "facts", arrow: "->>", steps: "height" });
  assert.deepEqual(pathOf('"a->b"'), { column: '"a->b"', arrow: "", steps: "" });
  assert.deepEqual(["facts", "facts->a", "facts->a->>b", "facts->>a->b"].map((name) => typeAt(name, "json")), ["json", "jsonb", "text", "jsonb"]);
});

test("names are quoted if necessary", () => {
  for (const name of ["plain", "two words", "a,b", 'say "x"', "a.b", "back\\slash"]) assert.equal(unquoted(quoted(name)), name);
  assert.equal(quoted("two words"), "two words");
  assert.deepEqual(split('a,"b,c",d(e,f)', ","), ["a", '"b,c"', "d(e,f)"]);
});

test("sums are offered only for numbers", () => {
  assert.deepEqual(aggregatesOf("integer"), ["sum", "avg", "min", "max", "count"]);
  assert.deepEqual(aggregatesOf("timestamp with time zone"), ["min", "max", "count"]);
  assert.deepEqual(aggregatesOf("jsonb"), ["count"]);
});
