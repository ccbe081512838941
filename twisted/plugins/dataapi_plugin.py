"""Registers ``twistd dataapi`` with Twisted."""

from twisted.application.service import ServiceMaker

dataapi = ServiceMaker("dataapi", "dataapi.tap", "GraphQL, REST and webhooks for PostgreSQL", "dataapi")
