"""HTTP: routes, requests and answers as values, CORS, and one renderer of errors per protocol."""
