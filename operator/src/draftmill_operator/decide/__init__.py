"""Decide: spec, recorded facts, what is observed -> what shall be. Pure; the first rule that applies wins."""
