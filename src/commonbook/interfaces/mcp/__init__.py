"""The book for agents: one table of tools over the Model Context Protocol (MCP), on stdio and over HTTP."""
