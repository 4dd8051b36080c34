"""`python -m ratchet` is the command `ratchet`."""

from ratchet.jobs.cli import main

if __name__ == "__main__":
    main()
