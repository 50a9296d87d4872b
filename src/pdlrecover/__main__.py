"""`python -m pdlrecover` is the `pdlrecover` command."""

from pdlrecover.cli import main

main()
