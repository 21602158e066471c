"""The only way to a network: httpx, deadlines, arrival times, redaction. Nothing here judges."""
