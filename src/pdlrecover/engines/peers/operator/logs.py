"""The log of a running peer as JSON, one object a line."""

import json
import logging
import time


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, text, and the facts."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON."""
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "text": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        return json.dumps(line, default=str)
