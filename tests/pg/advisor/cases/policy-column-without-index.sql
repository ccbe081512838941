-- Fault: column public.note.owner
create policy p on note using ((select caller()) = owner);
create policy q on note for select using (owner = 'x' and id < 3);

-- Similar: the column has an index
create policy own on note using (owner = (select caller()));
create index on note (owner);

-- Similar: another compared column has an index
create policy p on note using (id = 1 and owner = (select caller()));

-- Similar: the column is Boolean
create policy p on note using (public = true);

-- Similar: the policy compares the result of a function
create policy p on note using (lower(owner) = (select caller()));

-- Similar: the policy is only for new rows
create policy p on note for insert with check (owner = (select caller()));

-- Similar: the column is compared for rows of another table
create table member (note int, who text);
create policy p on note using (exists (select from member m where m.note = note.id and m.who = note.owner));

-- Fault: column public.doc."Team"
create table doc (id int, "Team" varchar(9), other varchar(9));
alter table doc enable row level security;
grant select on doc to anon;
create index on doc (id, "Team");
create policy p on doc using ("Team" = any (array['a', (select caller())]));

-- Fault: column public.doc.team
create table member (team int, who text);
create table doc (id int, team int);
alter table doc enable row level security;
grant select on doc, member to anon;
create policy p on doc using (team in (select team from member where who = (select caller())));
