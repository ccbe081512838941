-- Fault: policy everything of table public.note
create policy everything on note for update using (true);

-- Similar: the condition depends on the caller
create policy own on note using (owner = (select caller()));
create index on note (owner);

-- Similar: the policy is for service_role
create policy p on note to service_role using (true);

-- Similar: the role has no privilege
create policy p on note for insert to anon with check (true);

-- Similar: a restrictive policy also applies
create policy p on note using (true);
create policy own on note as restrictive using (owner = (select caller()));

-- Similar: the condition only contains the word true
create policy p on note using (public = true or owner = 'true');

-- Similar: only one operand of AND is true
create policy p on note using (owner = 'a' and (owner = 'b' or true));

-- Similar: the policy is restrictive
create policy p on note as restrictive using (true);

-- Similar: row level security is disabled
create policy p on note using (true);
alter table note disable row level security;

-- Fault: policy p of table public.note
create policy p on note to authenticated using (owner = (select caller())) with check (1 = 1);

-- Fault: policy p of table public.note
create policy p on note for delete using (owner = 'x' or true);
create policy own on note as restrictive for update using (owner = (select caller()));
