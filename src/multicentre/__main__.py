"""``python -m multicentre``."""

from multicentre.cli import main

if __name__ == "__main__":
    main()
