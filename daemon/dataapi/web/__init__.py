"""The HTTP interface: server, routes, request pipeline, CORS, error formats, console and admin listener."""
