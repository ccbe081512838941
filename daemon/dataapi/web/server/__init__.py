"""The HTTP server: connections read by llhttp, requests within limits, answers written at once."""
