-- name: sealed_otherwise
-- What is sealed with the first key begins with $1.
select id::text, signing_secret, custom_headers
from webhooks.endpoint
where id > $2::uuid
    and (substr(signing_secret, 1, length($1::bytea)) <> $1::bytea
        or substr(custom_headers, 1, length($1::bytea)) <> $1::bytea)
order by id
limit $3;

-- name: replace
-- What was changed or deleted since it was read stays so.
update webhooks.endpoint set signing_secret = $4::bytea, custom_headers = $5::bytea
where id = $1::uuid and signing_secret = $2::bytea and custom_headers = $3::bytea
returning id::text;
