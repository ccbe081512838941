insert into country values ('at', 'Austria'), ('be', 'Belgium'), ('cz', 'Czechia');
insert into skill select n, 'Skill ' || n from generate_series(1, 5) n;
insert into company
select n, 'Company ' || n, (array['at', 'be', 'cz'])[1 + n % 3], date '2000-01-01' + n * 100
from generate_series(1, 12) n;
insert into employee
select c, e, 'Employee ' || e || ' of ' || c, 'e' || e || '@c' || c, 1000 + e * 100 + c, nullif((e + c) % 6, 0)
from generate_series(1, 12) c, generate_series(1, 10) e;
insert into project
select c, p, 'Project ' || p, 100 * p + c, jsonb_build_object('level', p, 'of', jsonb_build_object('c', c)),
       array['t' || p, 'c' || c]
from generate_series(1, 12) c, generate_series(1, 4) p;
insert into task
select c, t, 1 + t % 4, nullif(t % 11, 0), 'Task ' || t, t % 3 = 0, t + c * 0.5, date '2024-01-01' + t
from generate_series(1, 12) c, generate_series(1, 20) t;
insert into membership
select c, e, p from generate_series(1, 12) c, generate_series(1, 10) e, generate_series(1, 4) p
where (e + p) % 3 = 0;
insert into note select c, n, 'Note ' || n from generate_series(1, 12) c, generate_series(1, 3) n;
analyze;
