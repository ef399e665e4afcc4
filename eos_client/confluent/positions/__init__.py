"""Clients whose positions and transactions are those of a store, such as an application's database."""
