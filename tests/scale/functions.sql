-- Created after the tables are distributed, so that Citus also creates them on the workers.

create function total_hours(company int) returns numeric language sql stable as
    $$ select sum(hours) from task where company_id = company $$;
create function tasks_of(company int) returns setof task language sql stable as
    $$ select * from task where company_id = company $$;
create function add(a int, b int) returns int language sql immutable as
    $$ select a + b $$;
create function label(employee) returns text language sql immutable as
    $$ select $1.name || ' <' || $1.email || '>' $$;
create function rename_company(company int, new_name text) returns text language sql volatile as
    $$ update company set name = $2 where company.id = $1 returning company.name $$;
create function check_request() returns void language plpgsql as $$
begin
    if current_setting('request.headers', true)::json ->> 'x-refuse' is not null then
        raise exception 'refused';
    end if;
    if current_setting('request.headers', true)::json ->> 'x-say' is not null then
        perform set_config('response.headers', '[{"X-Said": "so"}]', true);
    end if;
end $$;

grant usage on schema public to anon, authenticated, service_role;
grant all on all tables in schema public to anon, authenticated, service_role;
comment on schema public is e'@graphql({"inflect_names": true})';
comment on table company is e'@graphql({"totalCount": {"enabled": true}})';
comment on table employee is e'@graphql({"totalCount": {"enabled": true}})';
comment on table task is e'@graphql({"totalCount": {"enabled": true}})';
