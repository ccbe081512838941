"""Protocol-independent HTTP values: requests, replies, headers, query strings and errors."""
