-- Claims cost what is due.  A row that cannot be claimed yet, because it is a retry or somebody holds it, is in no index
-- that a claim walks along; it becomes ready when its time has come.

alter table webhooks.due add column waiting boolean not null default false;
comment on column webhooks.due.waiting is
    'Whether claimable_at was still to come when the row was last written or looked at; claims pass over such rows.';

update webhooks.due set waiting = true where claimable_at > now();

drop index webhooks.due_endpoint;
create index due_ready on webhooks.due (endpoint_id, claimable_at) where not waiting;
create index due_waiting on webhooks.due (claimable_at) where waiting;
