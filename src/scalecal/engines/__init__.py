"""Where work runs: here, or on a cluster."""
