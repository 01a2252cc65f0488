"""Fixtures for projects that test against an embedded Headrace."""
