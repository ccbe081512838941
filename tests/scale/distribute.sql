select create_reference_table('country');
select create_reference_table('skill');
select create_distributed_table('company', 'id');
select create_distributed_table('employee', 'company_id', colocate_with => 'company');
select create_distributed_table('project', 'company_id', colocate_with => 'company');
select create_distributed_table('task', 'company_id', colocate_with => 'company');
select create_distributed_table('membership', 'company_id', colocate_with => 'company');
select create_distributed_table('note', 'company_id', colocate_with => 'company');
