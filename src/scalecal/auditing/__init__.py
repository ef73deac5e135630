"""The audit: calibration by how far the readers agree, with its own noise floor."""
