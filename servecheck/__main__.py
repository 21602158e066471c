"""``python -m servecheck``."""

from servecheck.entry import main

main()
