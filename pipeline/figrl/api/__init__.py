"""The calls and objects of a notebook, in the words of Python."""
