"""Runs the agent frameworks of the guides in environments of their own, without a network.

`environments` installs them once, with one; `scenes` runs the example of a guide as it stands
against a scripted model on loopback; `judging` says what held.
"""
