-- name: list
select type from webhooks.row_change_type order by type;

-- name: add
insert into webhooks.event_type values ($1) on conflict do nothing;
insert into webhooks.row_change_type (type) values ($1) on conflict do nothing returning type;

-- name: remove
delete from webhooks.event_type where type in (select type from webhooks.row_change_type where type = $1);
delete from webhooks.row_change_type where type = $1 returning type;
