-- A manual retry that succeeds ends the automatic ones.

alter table webhooks.event add column delivered boolean not null default false;
comment on column webhooks.event.delivered is
    'Whether a manual retry delivered it: no automatic attempt is made any more.';

-- Only retries: the first attempt of an event, which is due at once, need not be found by its event.
create index due_retry on webhooks.due (event_id) where attempt_number > 1;
