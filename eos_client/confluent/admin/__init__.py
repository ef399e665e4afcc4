"""Questions about the cluster, its topics and their records, asked without joining a group."""
