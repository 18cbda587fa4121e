"""`dvp sandbox` with the arguments that are given, in place of this process."""
import os
import sys
from pathlib import Path


def main() -> None:
    binary = Path(__file__).with_name("dvp")
    # An installer that unpacks without permissions has left it a plain file.
    if not os.access(binary, os.X_OK):
        binary.chmod(0o755)
    os.execv(binary, ["dvp", "sandbox", *sys.argv[1:]])
