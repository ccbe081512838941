"""The Model Context Protocol: tools for agents, with the rights of the caller."""
