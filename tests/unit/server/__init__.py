"""Tests of the server: gateway, statements, settings, shell."""
