"""The only I/O: httpx, deadlines, arrival times, redaction. Nothing here judges."""
