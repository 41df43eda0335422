"""Sessions: append messages, switch, rewind, and settle messages into episodes."""
