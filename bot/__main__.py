"""`python -m bot` is `xidbot`."""

from bot.cli import main

main()
