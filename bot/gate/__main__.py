"""`python -m bot.gate` is `xidbot-gate`."""

import sys

from bot.gate import main

if __name__ == "__main__":
    sys.exit(main())
