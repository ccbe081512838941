"""The advisor: finds risks and performance problems in the exposed schemas (docs/guides/advisor.md)."""
