-- name: publish
select webhooks.publish_at($1, $2, $3, $4::jsonb, $5, $6::timestamptz)::text;

-- name: replace_versions
delete from webhooks.event_type_version
where (type, renders) not in (select * from unnest($1::text[], $2::text[]));
insert into webhooks.event_type_version (type, renders)
select * from unnest($1::text[], $2::text[])
on conflict do nothing;
