"""The pages: a module for each, and `site` for what they share. They act by the API alone."""
