"""Files that are read and written window by window, and runs over them that can be continued after any end."""
