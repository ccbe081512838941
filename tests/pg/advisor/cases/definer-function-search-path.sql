-- Fault: function public.f(text)
create function f(a text) returns int language sql security definer as 'select 1';

-- Similar: the function runs as its caller
create function f(a text) returns int language sql as 'select 1';

-- Similar: the search path is set
create function f(a text) returns int language sql security definer set search_path = '' as 'select 1';

-- Similar: no role may call the function
create function f(a text) returns int language sql security definer as 'select 1';
revoke execute on function f from public;

-- Similar: no role may use the schema
create function private.f(a text) returns int language sql security definer as 'select 1';

-- Fault: function private.f()
create table t (id int);
grant insert on t to anon;
create function private.f() returns trigger language plpgsql security definer as 'begin return new; end';
create trigger f before insert on t for each row execute function private.f();
