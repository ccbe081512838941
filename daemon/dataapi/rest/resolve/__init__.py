"""What the names of a REST request mean to one role: tables, embeds, filters, as algebra; pure."""
