-- Fault: policy p of table public.note
create policy p on note using (owner = caller()) with check (caller() = owner);

-- Similar: the call is in a subquery
create policy own on note using (owner = (select caller()));
create index on note (owner);

-- Similar: the argument depends on the row
create function see(int) returns boolean stable language sql as 'select true';
create policy p on note using (see(id));

-- Similar: built-in functions are cheap
create policy p on note using (owner = lower('X') and now() > '2000-01-01');

-- Similar: the policy is for service_role
create policy p on note to service_role using (owner = caller());

-- Similar: current_setting is called in a subquery
create policy p on note using (owner = (select current_setting('a.b', true)));

-- Fault: policy p of table public.note
create table private.member (who text, note int);
create policy p on note using (exists (select from private.member m where m.note = note.id and m.who = (nullif(current_setting('request.jwt.claims', true), '')::json ->> 'a)b''')));

-- Fault: policy "Odd {one}" of table public.note
create function private."Odd f"(a text, b int) returns text stable language sql as $$ select a $$;
create policy "Odd {one}" on note using (owner in (private."Odd f"(lower(('(')), (1 + 2)), '{'));
