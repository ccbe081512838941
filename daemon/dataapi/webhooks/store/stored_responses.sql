-- name: begin
-- Returns a row if the key is new or has expired after 24 hours.
insert into webhooks.answer as known (token_id, key, request) values ($1::uuid, $2, $3)
on conflict (token_id, key) do update set request = excluded.request, answer = null, created_at = now()
    where known.created_at <= now() - interval '24 hours'
returning 1;

-- name: known
select request, answer from webhooks.answer where token_id = $1::uuid and key = $2;

-- name: end
update webhooks.answer set answer = $3 where token_id = $1::uuid and key = $2;

-- name: forget
delete from webhooks.answer where token_id = $1::uuid and key = $2 and answer is null;
