"""`headrace sql`: the shell. A client like any other: it knows the gateway by HTTP alone and imports nothing else of
the project.

`main.py` reads flags and decides what to run; `shell.py` runs statements and shows results; `repl.py` is the
interactive prompt, `meta.py` its backslash commands; `client.py` speaks HTTP; `output.py` and `live.py` write rows;
`script.py` cuts texts into statements and fills in variables.
"""
