"""The numbered migrations of the schema ``webhooks``, applied in order by ``dataapi.webhooks.migrate``."""
