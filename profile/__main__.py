"""`python -m kernelroof.profile` is the command line."""

import sys

from kernelroof.profile.cli import main

sys.exit(main())
