"""``python -m inferq`` is the command ``inferq``."""

from inferq.cli import main

if __name__ == "__main__":
    main()
