-- Foreign keys whose columns are not the first columns of an index. A partial index on non-null values is sufficient.
select
    format('foreign key %I of table %s', k.conname, r.name) as object,
    format('no index begins with %s, so a join from %s and each delete there scan the whole table',
           c.names, k.confrelid::regclass) as why,
    format('create index on %s (%s);', r.name, c.names) as fix
from pg_constraint k
join reached r on r.oid = k.conrelid and r.relkind in ('r', 'p')
cross join lateral (
    select string_agg(quote_ident(a.attname), ', ' order by p.position) as names
    from unnest(k.conkey) with ordinality as p(number, position)
    join pg_attribute a on a.attrelid = k.conrelid and a.attnum = p.number
) c
where k.contype = 'f' and k.conparentid = 0
  and not exists (
      select from pg_index i
      join pg_class x on x.oid = i.indexrelid
      join pg_am m on m.oid = x.relam
      where i.indrelid = k.conrelid and i.indisvalid and m.amname in ('btree', 'hash')
        and (i.indpred is null or pg_get_expr(i.indpred, i.indrelid) ~ '^\([^ ]+ IS NOT NULL\)$')
        and i.indnkeyatts >= cardinality(k.conkey)
        and (i.indkey::smallint[])[0:cardinality(k.conkey) - 1] @> k.conkey
  )
