"""``python -m servecheck``."""

from servecheck.cli import main

main()
