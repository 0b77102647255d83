"""The commands: their options, their work where it is short, and their lines."""
