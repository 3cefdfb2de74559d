"""A chat with a model that has the skills.

The entries are `conversation.ChatConversation`, and `repl.talk` for a terminal. Nothing is imported
here, so that `--help` stays fast.
"""
