"""A long run under a steady load, with kills: does it stay right, and does it stay the same."""
