"""Users' tables in, output folders out.

`read_table` takes any CSV, Parquet, Excel or JSON Lines file; `read_predictions` and `read_votes` know
what the columns mean; `output_folder`, `write_json` and `write_csv` leave nothing half-written.
"""

from scalecal.io.case_tables import (
    PredictionFile,
    read_common_predictions,
    read_predictions,
    read_votes,
)
from scalecal.io.store import (
    file_hash,
    output_folder,
    write_csv,
    write_json,
    write_text,
)
from scalecal.io.tables import read_table

__all__ = [
    "PredictionFile",
    "file_hash",
    "output_folder",
    "read_common_predictions",
    "read_predictions",
    "read_table",
    "read_votes",
    "write_csv",
    "write_json",
    "write_text",
]
