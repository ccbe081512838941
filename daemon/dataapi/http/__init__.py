"""HTTP as values, independent of server and protocol: requests, replies, headers, query strings, errors."""
