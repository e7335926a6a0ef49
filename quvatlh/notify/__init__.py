"""Requests to the world outside: webhooks, and whatever else is asked by HTTP. See DESIGN.md beside this file."""
