-- Creates missing roles of the APIs.
do $$
begin
    if to_regrole('anon') is null then
        create role anon nologin noinherit;
    end if;
    if to_regrole('authenticated') is null then
        create role authenticated nologin noinherit;
    end if;
    if to_regrole('service_role') is null then
        create role service_role nologin noinherit bypassrls;
    end if;
    if to_regrole('authenticator') is null then
        create role authenticator login noinherit;
    end if;
end
$$;
grant anon, authenticated, service_role to authenticator;
