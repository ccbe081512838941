"""Logs, metrics, traces and readiness."""
