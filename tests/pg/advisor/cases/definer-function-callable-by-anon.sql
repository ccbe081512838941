-- Fault: function public.f(integer)
create function f(a int) returns int language sql security definer set search_path = '' as 'select 1';

-- Similar: the function runs as its caller
create function f(a int) returns int language sql as 'select 1';

-- Similar: anon may not call the function
create function f(a int) returns int language sql security definer as 'select 1';
revoke execute on function f from public;
grant execute on function f to authenticated;

-- Similar: a trigger function cannot be called
create function f() returns trigger language plpgsql security definer as 'begin return new; end';

-- Similar: the schema is not exposed
create function private.f(a int) returns int language sql security definer as 'select 1';

-- Fault: function public.f()
create function f() returns int language sql security definer set search_path = '' as 'select 1';
revoke execute on function f from public;
grant execute on function f to anon, authenticated;
