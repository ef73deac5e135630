"""Speed against named peers: ``python -m benchmarks`` runs all, ``python -m benchmarks NAME`` one."""
