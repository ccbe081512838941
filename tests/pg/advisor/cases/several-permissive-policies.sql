-- Fault: table public.note
create policy read on note for select to authenticated using (public);
create policy own on note to authenticated using (owner = (select caller())) with check (owner = 'x');

-- Similar: there is one policy
create policy own on note using (owner = (select caller()));
create index on note (owner);

-- Similar: the policies are for different commands
create policy p on note for select using (public);
create policy q on note for insert with check (public);

-- Similar: the policies are for different roles
create policy p on note for select to anon using (public);
create policy q on note for select to authenticated using (owner = 'x');

-- Similar: one policy restricts the other
create policy p on note using (public);
create policy q on note as restrictive using (owner = 'x');

-- Fault: table public.note
create policy a on note for insert with check (public);
create policy b on note for insert with check (owner = 'x');
create policy c on note for update using (public);
create policy d on note for delete using (id = 1);
create policy e on note for delete using (id = 2);
