"""Our own extensions, each a package that can be deleted: nothing outside imports one of them.

`extension.own` has the table by which verbs, tools and servers find them.
"""
