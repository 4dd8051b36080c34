"""The commands that write to the lake, and what wires them."""
