"""A bot: people talk in Telegram and Discord with an assistant that has the skills.

The entries are `gateway.Gateway`, and `chat_channel.ChatChannel` for a service of one's own.
Nothing is imported here, so that `--help` stays fast.
"""
