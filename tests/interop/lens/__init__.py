"""Holds the client profiles against the programs themselves: what each lists, and what we say.

    ./x py -m tests.interop.lens --agents PINNED/node_modules/.bin --sample FILE

`cases` chooses files, `listing` asks the programs, and `__main__` compares.
"""
