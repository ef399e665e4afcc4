"""Requests about the cluster, its topics and their records, made without joining a group."""
