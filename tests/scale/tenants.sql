-- Companies with their rows, and tables shared by all companies.

create table country (code text primary key, name text not null);
create table skill (id int primary key, name text not null);
create table company (id int primary key, name text not null, country text, founded date);
create table employee (
    company_id int not null,
    id int not null,
    name text not null,
    email text,
    salary numeric,
    skill_id int,
    primary key (company_id, id)
);
create table project (
    company_id int not null,
    id int not null,
    title text not null,
    budget int,
    details jsonb,
    tags text[],
    primary key (company_id, id)
);
create table task (
    company_id int not null,
    id int not null,
    project_id int not null,
    assignee_id int,
    title text not null,
    done boolean not null default false,
    hours numeric,
    due date,
    primary key (company_id, id)
);
create table membership (
    company_id int not null,
    employee_id int not null,
    project_id int not null,
    primary key (company_id, employee_id, project_id)
);
create table note (
    company_id int not null,
    id int not null,
    text text,
    primary key (company_id, id)
);
alter table note enable row level security;
create policy own on note
    using (company_id = (current_setting('request.jwt.claims', true)::json ->> 'company_id')::int);
