-- The processes that deliver, so that another one goes on with the work of one that died before its leases end.

create table webhooks.dispatcher (
    number integer primary key,
    missing_since timestamptz
);
comment on table webhooks.dispatcher is
    'Processes that hold the advisory lock (723614825, number) in a session for as long as they live.';
comment on column webhooks.dispatcher.missing_since is 'Since when nobody is known to hold the lock.';

alter table webhooks.due add column holder integer;
comment on column webhooks.due.holder is
    'The dispatcher that claimed it last; null: nobody can tell whether that one lives.';
