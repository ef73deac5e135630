"""Resampling units, nulls and paired differences: what every interval and p-value comes from."""
