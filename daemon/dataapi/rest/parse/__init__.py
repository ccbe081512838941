"""Parses REST requests into typed values, without a look at any catalog; pure."""
