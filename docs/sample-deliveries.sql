-- Two weeks of deliveries to the first three endpoints, for screenshots and tests of the console. The first receiver is
-- reliable, the second one fails occasionally, and the third one had an outage of two days.
set timezone = 'UTC';

do $$
declare
    day date;
    partition text;
begin
    for day in select generate_series(now()::date - 14, now()::date - 1, interval '1 day')::date loop
        partition := to_char(day, '"delivery_"YYYYMMDD');
        if to_regclass('webhooks.' || partition) is null then
            execute format(
                'create table webhooks.%I partition of webhooks.delivery for values from (%L) to (%L)',
                partition, webhooks.uuid_floor(day), webhooks.uuid_floor(day + 1));
        end if;
    end loop;
end
$$;

create function pg_temp.identifier(at timestamptz, salt text) returns uuid
language sql immutable
as $$
    select (substr(replace(webhooks.uuid_floor(at)::text, '-', ''), 1, 12)
            || '7' || substr(md5(salt), 1, 3) || '8' || substr(md5(salt), 4, 15))::uuid
$$;

-- Returns a pseudo-random number between 0 and 1 that depends only on the salt.
create function pg_temp.chance(salt text) returns float
language sql immutable
as $$ select ('x' || substr(md5(salt), 1, 7))::bit(28)::int / 268435456.0 $$;

create temporary table sample as
with endpoint as (
    select id, row_number() over (order by created_at, id) as place, organization_slug, project_ref from webhooks.endpoint
), raised as (
    select e.*, ago, n, e.place || '.' || ago || '.' || n as salt,
           now()::date - ago + interval '1 day' * (n + 0.5) / (24 + 4 * (ago * 5 % 7)) as at
    from endpoint e, generate_series(0, 13) as ago, generate_series(0, 23 + 4 * (ago * 5 % 7)) as n
    where e.place <= 3
)
select r.*, type, failing, least(4, 1 + floor(pg_temp.chance(salt || 'again') * 3)) as failures,
       1 - sqrt(1 - pg_temp.chance(salt || 'time') * 0.98) as share
from raised r
cross join lateral (
    select (array['v1.project.paused', 'v1.project.restored', 'v1.project.backup.started', 'v1.project.created'])
               [1 + floor(pg_temp.chance(salt || 'type') * 4)] as type,
           case place when 1 then false when 2 then pg_temp.chance(salt) < 0.12 else ago in (4, 5) and pg_temp.chance(salt) < 0.5 end as failing
) as what
where at < now() - interval '10 minutes';

insert into webhooks.event (id, endpoint_id, type, happened_at, body)
select i.id, s.id, type, at,
       webhooks.envelope(i.id, type, at, jsonb_build_object(
           'organization_slug', organization_slug, 'project_ref', project_ref, 'actor', null, 'reason', 'inactivity')::text)
from sample s
cross join lateral (select pg_temp.identifier(at, salt || s.id)) as i (id);

insert into webhooks.delivery (id, event_id, endpoint_id, event_type, status, attempt_number, trigger, response_code,
                               response_headers, response_body, error, duration_ms, attempt_timestamp, next_attempt_at)
select pg_temp.identifier(tried, salt || id || attempt), pg_temp.identifier(at, salt || id), id, type,
       case when good then 'success' else 'failed' end, attempt, 'automatic',
       case when good then 200 when place = 2 then 503 else 0 end,
       case when good or place = 2 then jsonb_build_object('content-type', 'application/json', 'server', 'nginx') end,
       case when good then '{"received": true}' when place = 2 then '{"error": "upstream is being restarted"}' end,
       case when not good and place = 3 then 'timeout' end,
       case when not good and place = 3 then 20000 else round((30 + 22 * place + ago * 3) * (1 + 5 * share ^ 3)) end,
       tried, case when not good and attempt < 5 then tried + interval '1 second' * (array[10, 30, 90, 270])[attempt] end
from sample s
cross join lateral generate_series(1, case when not failing then 1 when place = 3 and share < 0.5 then 5 else failures::int + 1 end) as attempt
cross join lateral (
    select at + interval '1 second' * (array[0, 10, 40, 130, 400])[attempt] as tried,
           not failing or attempt > failures and not (place = 3 and share < 0.5) as good
) as made;
