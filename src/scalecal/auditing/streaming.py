"""The audit of more predictions than fit into memory: one pass, flat memory, parts that add up.

`StreamingAudit` takes blocks of predictions, `merge` adds the states of several passes (files,
machines), and `finish` gives an audit with the numbers of `scalecal.audit`. `stream_file` does it
for a CSV or Parquet file.
"""

from scalecal.auditing.stream_audits import StreamedAudit, StreamingAudit
from scalecal.auditing.stream_files import stream_file

__all__ = ["StreamedAudit", "StreamingAudit", "stream_file"]
