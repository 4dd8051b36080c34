"""Verification that never sleeps."""
