"""Parsing of REST requests into typed values, independent of any catalog."""
