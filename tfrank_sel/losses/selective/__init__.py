"""Selective matching losses, and the functions that choose one."""
