-- Grants on one table or function, in the format that build.py expects.
--
-- Parameters: the role that was denied access, the object's OID, and whether it is a function.
-- Returns one row, or none if the role or the object no longer exists. The row is a JSON array: the OIDs of the
-- roles whose grants the role inherits, and an object of access control lists. The keys of the object are "-1" for
-- the schema, "0" for the table or function, and the column numbers.

with object as (
    select oid, relnamespace as schema, coalesce(relacl, acldefault('r', relowner)) as acl
    from pg_class where oid = $2::oid and not $3::boolean
    union all
    select oid, pronamespace, coalesce(proacl, acldefault('f', proowner))
    from pg_proc where oid = $2::oid and $3::boolean
),
lists(number, acl) as (
    select -1, coalesce(n.nspacl, acldefault('n', n.nspowner))
    from object o join pg_namespace n on n.oid = o.schema
    union all
    select 0, acl from object
    union all
    select attnum, attacl
    from pg_attribute
    where attrelid = $2::oid and attnum > 0 and not attisdropped and attacl is not null and not $3::boolean
)
select json_build_array(
    array(
        select g.oid from pg_roles g
        where not r.rolsuper and g.oid <> r.oid
          and (g.rolname = 'pg_database_owner' or g.oid in (select roleid from pg_auth_members))
          and pg_has_role(r.oid, g.oid, 'USAGE')
        order by g.oid
    ),
    (
        select json_object_agg(l.number, array(
            select json_build_array(e.grantee, json_agg(distinct e.privilege_type))
            from aclexplode(l.acl) as e group by e.grantee order by e.grantee
        ))
        from lists l
    )
)::text
from pg_roles r
where r.rolname = $1::text and exists (select from object)
