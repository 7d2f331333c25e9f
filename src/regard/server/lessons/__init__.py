"""Lessons: the walk from a mixture of three words to the whole model, with numbers that are computed live."""

from regard.server.lessons.routes import LESSONS, add_lessons

__all__ = ["LESSONS", "add_lessons"]
