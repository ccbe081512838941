"""Fills the webhooks tables with two weeks of deliveries of a busy service."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from support.postgres import Database

REF = "abcdefghijklmnopqrst"
DAYS = 16
"""Number of days of history. Fourteen are within the retention period, older days are due for removal."""

_AT_ONCE = 500_000

_FUNCTION = """
create table public.receiver (number integer primary key, id uuid not null);
create function public.made_at(milliseconds bigint, seed text) returns uuid language sql immutable as $$
    select (lpad(to_hex(milliseconds), 12, '0') || '7' || left(md5(seed), 3) || '8' || right(md5(seed), 15))
        ::uuid
$$;
"""
_PARTITIONS = """
insert into webhooks.due (
    delivery_id, event_id, endpoint_id, epoch, event_type, trigger, due_at, claimable_at
)
select webhooks.uuid_floor(now() - %(days)s * interval '1 day'), id, id, 0, '', 'automatic', now(), now()
from public.receiver limit 1;
select webhooks.make_partitions(7);
delete from webhooks.due;
"""
_INDEXES = """
select indexrelid::regclass::text, replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON ')
from pg_index where indrelid = 'webhooks.delivery'::regclass and not indisprimary
"""

_PART = """
create temporary table part on commit drop as
select r.id as endpoint_id, f.at, public.made_at(f.at, 'event' || n) as event_id,
       public.made_at(f.at + 40, 'delivery' || n) as delivery_id,
       case when hash < 600 then 'v1.order.created' when hash < 998 then 'v1.order.paid'
            else 'v1.order.lost' end as type,
       case when number = 50 or hash between 590 and 610 then 'failed'
            when number >= 54 and hash = 5 then 'skipped' else 'success' end as status,
       case when number < 50 and n %% 7 = 0 then %(ref)s end as project_ref, n
from generate_series(%(first)s::bigint, %(last)s::bigint) n
cross join lateral (
    select (extract(epoch from now()) * 1000 - %(days)s * 86400000.0 * (%(count)s - n) / %(count)s)
               ::bigint as at,
           ('x' || left(md5(n::text), 7))::bit(28)::integer %% 1000 as hash
) f
cross join lateral (
    select case when n %% 3 = 0 then n / 3 %% 50 when n %% 50 = 1 then 50 else 54 + n %% 946 end as number
) e
join public.receiver r using (number)
order by n;
insert into webhooks.event (id, endpoint_id, type, happened_at, body)
select event_id, endpoint_id, type, to_timestamp(at / 1000.0), webhooks.envelope(
    event_id, type, to_timestamp(at / 1000.0), jsonb_build_object(
        'actor', null, 'organization_slug', 'large', 'project_ref', null, 'order', jsonb_build_object(
            'number', n, 'total', '129.90', 'currency', 'EUR', 'customer', md5(n::text)))::text)
from part;
insert into webhooks.delivery (
    id, event_id, endpoint_id, event_type, status, attempt_number, trigger, response_code, response_headers,
    response_body, duration_ms, attempt_timestamp, project_ref
)
select delivery_id, event_id, endpoint_id, type, status, 1, 'automatic', 0, null, null, null, null,
       project_ref
from part where status = 'skipped'
union all
select delivery_id, event_id, endpoint_id, type, status, 1, 'automatic',
       case status when 'success' then 200 else 503 end,
       '{"content-type": "application/json", "content-length": "16", "server": "nginx"}'::jsonb,
       '{"received": true}', 20 + n %% 400, to_timestamp(at / 1000.0), project_ref
from part where status <> 'skipped';
insert into webhooks.idempotency
select 'large', 'order ' || n, event_id, to_timestamp(at / 1000.0)
from part where at > extract(epoch from now() - interval '26 hours') * 1000;
insert into webhooks.due (
    delivery_id, event_id, endpoint_id, epoch, event_type, trigger, attempt_number, due_at, claimable_at,
    waiting, project_ref
)
select public.made_at(at + 80, 'due' || n), event_id, endpoint_id, 0, type, 'automatic', 2, later, later,
       later > now(), project_ref
from part cross join lateral (select now() + (n %% 1000 - 100) * interval '1 second' as later) l
where n > %(count)s - %(due)s;
"""


def fill(
    database: Database, receivers: Sequence[UUID], count: int, due: int, report: Callable[[str], None]
) -> None:
    """Insert events with a delivery each and make the latest deliveries due.

    The first fifty ``receivers`` get a third of all events. A seventh of these events is of the project
    ``REF``. The next receiver always responds with 503, the following three get no events, and the others get
    the remaining events.
    """
    connection = psycopg2.connect(database.admin_uri)
    values = {"days": DAYS, "count": count, "due": due, "ref": REF}
    try:
        with connection.cursor() as cursor:
            cursor.execute(_FUNCTION)
            for number, identifier in enumerate(receivers):
                cursor.execute("insert into public.receiver values (%s, %s)", (number, str(identifier)))
            cursor.execute(_PARTITIONS, values)
            cursor.execute(_INDEXES)
            indexes = cursor.fetchall()
            cursor.execute("alter table webhooks.delivery drop constraint delivery_pkey")
            for name, _ in indexes:
                cursor.execute(f"drop index {name}")
            connection.commit()
            for first in range(1, count + 1, _AT_ONCE):
                last = min(count, first + _AT_ONCE - 1)
                cursor.execute(_PART, {**values, "first": first, "last": last})
                connection.commit()
                report(f"{last:,} of {count:,}")
            for text in (
                "alter table webhooks.delivery add primary key (id)",
                *(text for _, text in indexes),
            ):
                began = time.perf_counter()
                cursor.execute(text)
                connection.commit()
                report(f"{text}: {time.perf_counter() - began:.1f} s")
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("vacuum (analyze)")
    finally:
        connection.close()


_WAITING = """
insert into webhooks.organization (slug, early_access)
select 'waiting-' || n, true from generate_series(0, 999) n;
insert into webhooks.endpoint (id, organization_slug, url, event_types, signing_secret, custom_headers)
select gen_random_uuid(), 'waiting-' || n %% 1000, 'https://waiting.example.com/', '{*}', '', ''
from generate_series(1, %s) n;
with event as (
    insert into webhooks.event (id, endpoint_id, type, happened_at, body)
    select webhooks.uuid_v7(), id, 'v1.order.paid', now(), '{}'
    from webhooks.endpoint where organization_slug like 'waiting-%%'
    returning *
)
insert into webhooks.due (
    delivery_id, event_id, endpoint_id, epoch, event_type, trigger, attempt_number, due_at, claimable_at,
    waiting
)
select webhooks.uuid_v7(), id, endpoint_id, 0, type, 'automatic', 5, later, later, true
from event cross join lateral (select now() + interval '1 hour' + random() * interval '5 hours' as later) l;
"""


def wait(database: Database, count: int) -> None:
    """Add endpoints with an attempt that will be retried in some hours."""
    database.execute(_WAITING, (count,))
    connection = psycopg2.connect(database.admin_uri)
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute("vacuum (analyze)")
    connection.close()
