"""Distillation losses: a student learns from the order of a teacher."""
