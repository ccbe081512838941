-- Installs event triggers that notify the daemon of changes to the schema and to grants.
--
-- Only superusers, or the equivalent role of a hosted PostgreSQL, can create event triggers. Other login roles
-- have to use NOTIFY. A trigger is replaced only if its comment does not contain the current version. Changes
-- to roles, memberships and settings do not fire event triggers.
do $install$
declare
    version constant text := 'dataapi 1: reload the API schema after DDL';
begin
    -- Several processes may start at the same time.
    perform pg_catalog.pg_advisory_xact_lock(7234015582049);
    if (
        select count(*) = 2 from pg_catalog.pg_event_trigger
        where evtname in ('dataapi_ddl', 'dataapi_drop')
          and pg_catalog.obj_description(oid, 'pg_event_trigger') = version
    ) then
        return;
    end if;
    drop event trigger if exists dataapi_ddl;
    drop event trigger if exists dataapi_drop;
    create schema if not exists dataapi;

    create or replace function dataapi.notify_ddl() returns event_trigger
    language plpgsql set search_path = pg_catalog as $body$
    begin
        -- Temporary objects belong to one session, and a refresh does not change a view's definition.
        if exists (
            select from pg_event_trigger_ddl_commands() as command
            where command.schema_name is distinct from 'pg_temp'
              and command.command_tag <> 'REFRESH MATERIALIZED VIEW'
        ) then
            perform pg_notify('dataapi', 'reload schema');
        end if;
    end
    $body$;

    create or replace function dataapi.notify_drop() returns event_trigger
    language plpgsql set search_path = pg_catalog as $body$
    begin
        if exists (select from pg_event_trigger_dropped_objects() as dropped where not dropped.is_temporary) then
            perform pg_notify('dataapi', 'reload schema');
        end if;
    end
    $body$;

    create event trigger dataapi_ddl on ddl_command_end execute function dataapi.notify_ddl();
    create event trigger dataapi_drop on sql_drop execute function dataapi.notify_drop();
    execute pg_catalog.format('comment on event trigger dataapi_ddl is %L', version);
    execute pg_catalog.format('comment on event trigger dataapi_drop is %L', version);
end
$install$;
select true
