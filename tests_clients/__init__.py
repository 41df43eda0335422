"""Tests with the real programs of others: agents with a scripted model, the conformance suite and the inspector of MCP.

`make check-clients` runs them where loopback is the only network.
"""
