"""Drop-in functions for inference engines: the names, arguments and semantics that they call today.

Each module holds the functions of one engine, to be imported instead of its own, and ``install()``,
a context manager that puts them into the engine where it is importable. No engine is imported
before that. Where an engine's behaviour is not our contract's (the order of slots, ties, rows no
longer than k) the function follows the engine, and its docstring says so.
"""
