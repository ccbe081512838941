-- Added after distribution: Citus rejects foreign keys from local tables to distributed ones.
alter table company add foreign key (country) references country;
alter table employee add foreign key (company_id) references company;
alter table employee add foreign key (skill_id) references skill;
alter table project add foreign key (company_id) references company;
alter table task add foreign key (company_id) references company;
alter table task add foreign key (company_id, project_id) references project (company_id, id);
alter table task add foreign key (company_id, assignee_id) references employee (company_id, id);
alter table membership add foreign key (company_id) references company;
alter table membership add foreign key (company_id, employee_id) references employee (company_id, id);
alter table membership add foreign key (company_id, project_id) references project (company_id, id);
