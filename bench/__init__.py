"""Benchmarks: what is timed, how, beside whom, and what is made of the results.

``python -m bench --help`` says how to run them. From data to pictures, each in its own file:
cases and distributions -> inputs -> contenders (ours and peers) -> timing and exactness -> results
in JSON -> comparison, tables and figures, which read nothing but JSON.
"""
