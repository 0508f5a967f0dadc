"""Answers as other programs read them."""
