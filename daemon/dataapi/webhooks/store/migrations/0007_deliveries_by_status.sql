-- Lists by status, also together with a type, read no row in vain, and statistics read an index alone.  A partition
-- that has such an index already, built before without keeping writers waiting, keeps it.

create index delivery_by_endpoint on webhooks.delivery (endpoint_id, id) include (status, duration_ms);
create index delivery_by_status on webhooks.delivery (endpoint_id, status, id) where status <> 'success';
create index delivery_by_type_and_status on webhooks.delivery (endpoint_id, event_type, status, id)
    where status <> 'success';
drop index webhooks.delivery_endpoint, webhooks.delivery_unsuccessful;
