"""Frames between replicas: their headers, seals and bodies, and what makes a replica refuse one."""
