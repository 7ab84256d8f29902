"""Settings for all tests: properties are judged by their result, never by the clock of a busy machine."""

from hypothesis import settings

settings.register_profile("no clock", deadline=None)
settings.load_profile("no clock")
