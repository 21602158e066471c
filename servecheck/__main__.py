from servecheck.cli import main

main()
