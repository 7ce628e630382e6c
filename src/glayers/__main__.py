"""`python -m glayers` runs the command line."""

from glayers.cli import main

if __name__ == "__main__":
    main()
